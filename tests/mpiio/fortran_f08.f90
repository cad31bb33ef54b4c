! Fortran 2008 over the stock bindings, which call the library's MPI_File functions.
program fortran_f08
  use mpi_f08
  implicit none
  type(MPI_File) :: file
  type(MPI_Status) :: status
  integer :: ierr, rank, nranks, count
  integer(kind=MPI_OFFSET_KIND) :: bytes
  double precision :: numbers(3), got(3)
  character(len=256) :: prefix
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, nranks)
  call get_command_argument(1, prefix)
  call MPI_File_open(MPI_COMM_WORLD, trim(prefix)//'fortran_f08', MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, file, ierr)
  if (ierr /= MPI_SUCCESS) error stop 1
  numbers = [1d0, 2d0, 3d0] + 100d0*rank
  call MPI_File_write_ordered(file, numbers, 3, MPI_DOUBLE_PRECISION, status, ierr)
  if (ierr /= MPI_SUCCESS) error stop 2
  call MPI_Get_count(status, MPI_DOUBLE_PRECISION, count)
  if (count /= 3) error stop 3
  call MPI_File_sync(file)
  call MPI_Barrier(MPI_COMM_WORLD)
  call MPI_File_get_size(file, bytes)
  if (bytes /= 24*nranks) error stop 4
  call MPI_File_seek_shared(file, 0_MPI_OFFSET_KIND, MPI_SEEK_SET)
  call MPI_File_read_ordered(file, got, 3, MPI_DOUBLE_PRECISION, status)
  if (any(got /= numbers)) error stop 5
  call MPI_File_close(file, ierr)
  if (ierr /= MPI_SUCCESS) error stop 6
  if (rank == 0) print *, 'passed'
  call MPI_Finalize()
end program fortran_f08
