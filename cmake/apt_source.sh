# Fetching Debian source packages; to be sourced. The machine's package sources and lists are read, never
# changed: the package manager works on private copies. The caller sets `job`, the word before what is said.

say() { printf '%s: %s\n' "$job" "$*"; }
refuse() {
  printf '%s: %s\n' "$job" "$*" >&2
  exit 1
}

# Runs a step with its output in a log; shows the end of the log when it fails.
step() {
  local log=$1
  shift
  "$@" >"$log" 2>&1 || {
    tail -n 20 "$log" >&2
    refuse "this step failed: $*; the whole log is $log"
  }
}

# Copies the machine's package sources to directory $1, with every binary entry turned into a source entry.
# Entries that offer no sources only make the update complain; they are not needed.
write_private_sources() {
  local to=$1 etc n=0 file
  etc=$(apt-config shell etc Dir::Etc/d)
  eval "$etc"
  for file in "${etc:?}"/sources.list "$etc"/sources.list.d/*.list; do
    [[ -r $file ]] || continue
    n=$((n + 1))
    sed -nE 's/^[[:space:]]*deb(-src)?[[:space:]]/deb-src /p' "$file" | sort -u >"$to/$n.list"
  done
  for file in "$etc"/sources.list.d/*.sources; do
    [[ -r $file ]] || continue
    n=$((n + 1))
    sed -E 's/^[Tt]ypes:.*/Types: deb-src/' "$file" >"$to/$n.sources"
  done
}

# fetch_source PACKAGE[=VERSION] DIRECTORY: leaves PACKAGE_VERSION.dsc and its files there, or answers 1; the log is
# DIRECTORY/download.log.
fetch_source() {
  local package=$1 to=$2 apt=$2/apt
  mkdir -p "$apt"/{sources,lists/partial,cache/archives/partial}
  write_private_sources "$apt/sources"
  cat >"$apt/apt.conf" <<CONF
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "$apt/sources";
Dir::State::lists "$apt/lists";
Dir::Cache "$apt/cache";
Acquire::Languages "none";
CONF
  # Everything below DIRECTORY belongs to the caller, so there is no other user to drop to.
  if [[ $EUID == 0 ]]; then
    printf 'APT::Sandbox::User "root";\n' >>"$apt/apt.conf"
  fi
  # An entry without sources fails its part of the update; what counts is whether the package is found afterwards.
  if ! apt-get -c "$apt/apt.conf" -q update >"$to/update.log" 2>&1; then
    say "some package sources offer no source packages; going on with the others"
  fi
  (cd "$to" && apt-get -c "$apt/apt.conf" -q source --download-only --only-source "$package") >"$to/download.log" 2>&1
}
