C     Fortran 77 over the stock bindings, which call the library's MPI_File functions.
      program fortran_mpif
      implicit none
      include 'mpif.h'
      integer file, ierr, rank, nranks, count, i
      integer status(MPI_STATUS_SIZE), numbers(4), got(4)
      integer(kind=MPI_OFFSET_KIND) offset, bytes
      character*256 prefix, path
      call MPI_INIT(ierr)
      call MPI_COMM_RANK(MPI_COMM_WORLD, rank, ierr)
      call MPI_COMM_SIZE(MPI_COMM_WORLD, nranks, ierr)
      call GETARG(1, prefix)
      path = trim(prefix) // 'fortran_mpif'
      call MPI_FILE_OPEN(MPI_COMM_WORLD, path,
     &     MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, file, ierr)
      if (ierr .ne. MPI_SUCCESS) stop 1
      do i = 1, 4
         numbers(i) = 10 * rank + i
      end do
      offset = 16 * rank
      call MPI_FILE_WRITE_AT_ALL(file, offset, numbers, 4, MPI_INTEGER,
     &     status, ierr)
      if (ierr .ne. MPI_SUCCESS) stop 2
      call MPI_GET_COUNT(status, MPI_INTEGER, count, ierr)
      if (count .ne. 4) stop 3
      call MPI_FILE_SYNC(file, ierr)
      call MPI_BARRIER(MPI_COMM_WORLD, ierr)
      call MPI_FILE_GET_SIZE(file, bytes, ierr)
      if (bytes .ne. 16 * nranks) stop 4
      offset = 16 * mod(rank + 1, nranks)
      call MPI_FILE_READ_AT_ALL(file, offset, got, 4, MPI_INTEGER,
     &     status, ierr)
      do i = 1, 4
         if (got(i) .ne. 10 * mod(rank + 1, nranks) + i) stop 5
      end do
      call MPI_FILE_CLOSE(file, ierr)
      if (ierr .ne. MPI_SUCCESS) stop 6
      if (rank .eq. 0) print *, 'passed'
      call MPI_FINALIZE(ierr)
      end
