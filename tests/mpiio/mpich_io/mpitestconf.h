#pragma once

#define HAVE_STRING_H 1
#define HAVE_UNISTD_H 1
