/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Checks of the tests in C: each that fails is printed, and counts. */
#ifndef NFL_TESTS_CHECK_H
#define NFL_TESTS_CHECK_H

#include <stdio.h>

static int failures;

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);    \
			failures++;                                                                \
		}                                                                                  \
	} while (0)

#endif
