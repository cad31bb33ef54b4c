#include "adio/romio/fs_type.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/vfs.h>

#include "adio/romio/ad_sluice.h"
#include "adio/romio/errors.h"

static const struct {
  const char* prefix;
  int fstype;
  ADIOI_Fns* fns;
} kFileSystems[] = {
    {"sluice:", SLUICE_ADIO_FSTYPE, &ADIO_SLUICE_operations},
    {"ufs:", ADIO_UFS, &ADIO_UFS_operations},
#ifdef ROMIO_NFS
    {"nfs:", ADIO_NFS, &ADIO_NFS_operations},
#endif
    {"testfs:", ADIO_TESTFS, &ADIO_TESTFS_operations},
};
enum { kFileSystemCount = sizeof kFileSystems / sizeof kFileSystems[0] };

static int by_prefix(const char* name) {
  for (int i = 0; i < kFileSystemCount; i++) {
    if (strncasecmp(name, kFileSystems[i].prefix, strlen(kFileSystems[i].prefix)) == 0) {
      return i;
    }
  }
  return -1;
}

static int by_type(int fstype) {
  int i = 0;
  while (kFileSystems[i].fstype != fstype) {
    i++;
  }
  return i;
}

// What is left of `name` below the mount prefix; NULL when it is not below it.
static const char* below_mount(const char* name) {
  const char* mount = getenv("SLUICE_PREFIX");
  if (!mount || !mount[0]) {
    mount = "/sluice";
  }
  size_t length = strlen(mount);
  while (length > 1 && mount[length - 1] == '/') {
    length--;
  }
  return strncmp(name, mount, length) == 0 && name[length] == '/' ? name + length : NULL;
}

static int plain_fstype(const char* name) {
#ifdef ROMIO_NFS
  enum { kNfsMagic = 0x6969 };
  struct statfs fs;
  char parent[4096];
  const char* slash = strrchr(name, '/');
  const size_t length = slash ? (size_t)(slash - name) + 1 : 0;
  if (length + 2 > sizeof parent) {
    return ADIO_UFS;  // its open says that the name is too long
  }
  memcpy(parent, name, length);
  memcpy(parent + length, ".", 2);
  if ((statfs(name, &fs) == 0 || statfs(parent, &fs) == 0) && fs.f_type == kNfsMagic) {
    return ADIO_NFS;
  }
#else
  (void)name;
#endif
  return ADIO_UFS;
}

int sluice_pool_path(const char* name, char* path, size_t capacity, struct SluiceError* error) {
  size_t used = 0;
  for (const char* at = name; *at;) {
    at += strspn(at, "/");
    const size_t length = strcspn(at, "/");
    if (length == 2 && at[0] == '.' && at[1] == '.') {
      return sluice_fail(error, SLUICE_INVALID_ARGUMENT,
                         "the Sluice path \"%.200s\" contains \"..\"; name the file from the top of the pool",
                         name);
    }
    if (length == 0 || (length == 1 && at[0] == '.')) {
      at += length;
      continue;
    }
    if (used + 1 + length + 1 > capacity) {
      return sluice_fail(error, SLUICE_TOO_LARGE,
                         "the Sluice path \"%.100s...\" is longer than %zu bytes; shorten it", name,
                         capacity - 1);
    }
    path[used++] = '/';
    memcpy(path + used, at, length);
    used += length;
    at += length;
  }
  path[used] = '\0';
  if (used == 0 || name[strlen(name) - 1] == '/') {
    return sluice_fail(error, SLUICE_INVALID_ARGUMENT,
                       "the Sluice path \"%.200s\" names no file; give one like sluice:/a/b", name);
  }
  return 0;
}

int sluice_choose_fs(const char* name, struct SluiceFsChoice* choice, struct SluiceError* error) {
  if (!name || !name[0]) {
    return sluice_fail(error, SLUICE_NOT_FOUND, "the file name is empty; give a path");
  }
  choice->name = name;
  int chosen = by_prefix(name);
  if (chosen >= 0) {
    choice->name = name + strlen(kFileSystems[chosen].prefix);
  } else if (below_mount(name)) {
    choice->name = below_mount(name);
    chosen = by_type(SLUICE_ADIO_FSTYPE);
  }
  const char* forced = getenv("ROMIO_FSTYPE_FORCE");
  if (forced) {
    chosen = by_prefix(forced);
    if (chosen < 0) {
      return sluice_fail(
          error, SLUICE_INVALID_ARGUMENT,
          "ROMIO_FSTYPE_FORCE=%.100s names no file system of this library; use sluice:, ufs: or testfs:",
          forced);
    }
  }
  if (chosen < 0) {
    chosen = by_type(plain_fstype(name));
  }
  choice->fstype = kFileSystems[chosen].fstype;
  choice->fns = kFileSystems[chosen].fns;
  if (choice->fstype != SLUICE_ADIO_FSTYPE) {
    return 0;
  }
  if (sluice_pool_path(choice->name, choice->pool_path, sizeof choice->pool_path, error)) {
    return -1;
  }
  choice->name = choice->pool_path;
  return 0;
}
