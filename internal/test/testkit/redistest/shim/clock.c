// Preloaded into redis-server: shifts its wall clock by the nanoseconds in the file that the
// environment variable REDISTEST_CLOCK names. Monotonic clocks stay.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static volatile long long *offset;
static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
  int fd = open(getenv("REDISTEST_CLOCK"), O_RDONLY);
  void *p = mmap(0, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
  if (fd < 0 || p == MAP_FAILED) abort();
  real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  offset = p;
}

int clock_gettime(clockid_t id, struct timespec *ts) {
  if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int failed = real(id, ts);
  if (failed || !offset || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)) return failed;
  long long ns = ts->tv_sec * 1000000000LL + ts->tv_nsec + *offset;
  ts->tv_sec = ns / 1000000000LL, ts->tv_nsec = ns % 1000000000LL;
  return 0;
}

int gettimeofday(struct timeval *tv, void *zone) {
  struct timespec ts;
  (void)zone;
  int failed = clock_gettime(CLOCK_REALTIME, &ts);
  tv->tv_sec = ts.tv_sec, tv->tv_usec = ts.tv_nsec / 1000;
  return failed;
}

time_t time(time_t *out) {
  struct timespec ts;
  clock_gettime(CLOCK_REALTIME, &ts);
  if (out) *out = ts.tv_sec;
  return ts.tv_sec;
}
