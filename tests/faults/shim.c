/* Faults at the border between a program and the system: preloaded, it stands before libc's calls.
 *
 * A block of numbers in a file, which processes share, says what is to happen and counts what did:
 * calls that change files below one folder, and bytes written there. At a call of a given number,
 * or when so many bytes are written, calls fail with an error, once or from then on, or the process
 * is killed. The wall clock can jump. See control.py, which writes the block.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct block {
  int64_t calls, bytes, happened; /* counted here */
  int64_t at_call, at_byte;       /* when it happens; 0: never */
  int64_t error, lasting, kill;   /* what happens */
  int64_t reads;                  /* whether reading counts, too */
  int64_t jump_s, asked;          /* the clock is off by -jump, 0 or jump, in turn */
  char under[4096];               /* the folder */
};
static struct block *block;

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("FAULTS_CONTROL");
  int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *at = mmap(NULL, sizeof *block, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at != MAP_FAILED) block = at;
  close(file);
}

#define REAL(name) \
  static __typeof__(&name) real; \
  if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static int below(const char *path) {
  size_t n = strlen(block->under);
  return n && !strncmp(path, block->under, n) && (path[n] == '/' || path[n] == 0);
}

static int counts_path(int folder, const char *path) {
  char whole[PATH_MAX], link[64];
  int was = errno, is = 0;
  if (!block || !block->under[0] || !path) return 0;
  if (path[0] == '/') return below(path);
  if (folder == AT_FDCWD) {
    if (!getcwd(whole, sizeof whole)) whole[0] = 0;
  } else {
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    ssize_t n = readlink(link, whole, sizeof whole - 1);
    whole[n < 0 ? 0 : n] = 0;
  }
  size_t n = strlen(whole);
  if (n + 1 + strlen(path) < sizeof whole) {
    whole[n] = '/';
    strcpy(whole + n + 1, path);
    is = below(whole);
  }
  errno = was;
  return is;
}

static int counts_file(int file) {
  char link[64], whole[PATH_MAX];
  if (!block || !block->under[0]) return 0;
  int was = errno;
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  ssize_t n = readlink(link, whole, sizeof whole - 1);
  errno = was;
  if (n < 0) return 0;
  whole[n] = 0;
  return below(whole);
}

/* Whether this call fails; `room` says whether it needs room, which is all that a full disk lacks. */
static int fails(int room) {
  int64_t nth = __sync_add_and_fetch(&block->calls, 1);
  int now = block->at_call && (block->lasting ? nth >= block->at_call : nth == block->at_call);
  if (!now) return 0;
  if (block->kill) {
    block->happened++;
    kill(block->kill > 1 ? 0 : getpid(), SIGKILL); /* 0: the whole process group */
    for (;;) pause();
  }
  if (block->error == ENOSPC && !room) return 0;
  block->happened++;
  errno = (int)block->error;
  return 1;
}

static ssize_t room_for(size_t n) {
  if (!block->at_byte) return (ssize_t)n;
  int64_t left = block->at_byte - block->bytes;
  if (left >= (int64_t)n) return (ssize_t)n;
  block->happened++;
  return left > 0 ? (ssize_t)left : 0;
}

#define WRITES(call, ...) \
  REAL(call); \
  if (!counts_file(file)) return real(file, from, n, ##__VA_ARGS__); \
  if (fails(1)) return -1; \
  size_t most = (size_t)room_for(n); \
  if (n && !most) { errno = (int)block->error; return -1; } \
  ssize_t done = real(file, from, most, ##__VA_ARGS__); \
  if (done > 0) __sync_add_and_fetch(&block->bytes, done); \
  return done

ssize_t write(int file, const void *from, size_t n) { WRITES(write); }
ssize_t pwrite(int file, const void *from, size_t n, off_t at) { WRITES(pwrite, at); }
ssize_t pwrite64(int file, const void *from, size_t n, off64_t at) { WRITES(pwrite64, at); }

ssize_t sendfile(int file, int from, off_t *at, size_t n) {
  REAL(sendfile);
  if (!counts_file(file)) return real(file, from, at, n);
  if (fails(1)) return -1;
  size_t most = (size_t)room_for(n);
  if (n && !most) {
    errno = (int)block->error;
    return -1;
  }
  ssize_t done = real(file, from, at, most);
  if (done > 0) __sync_add_and_fetch(&block->bytes, done);
  return done;
}

ssize_t read(int file, void *into, size_t n) {
  REAL(read);
  if (block && block->reads && counts_file(file) && fails(0)) return -1;
  return real(file, into, n);
}

#define OPENS(call, ...) \
  mode_t mode = 0; \
  if (flags & (O_CREAT | O_TMPFILE)) { \
    va_list more; \
    va_start(more, flags); \
    mode = va_arg(more, mode_t); \
    va_end(more); \
  } \
  REAL(call); \
  if ((flags & (O_CREAT | O_WRONLY | O_RDWR)) && counts_path(at, path) && fails(flags & O_CREAT)) \
    return -1; \
  return real(__VA_ARGS__)

int open(const char *path, int flags, ...) {
  int at = AT_FDCWD;
  OPENS(open, path, flags, mode);
}
int open64(const char *path, int flags, ...) {
  int at = AT_FDCWD;
  OPENS(open64, path, flags, mode);
}
int openat(int at, const char *path, int flags, ...) { OPENS(openat, at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) { OPENS(openat64, at, path, flags, mode); }

#define BY_FILE(call, given, room, ...) \
  int call given { \
    REAL(call); \
    if (counts_file(file) && fails(room)) return -1; \
    return real(__VA_ARGS__); \
  }
#define BY_PATH(call, given, at, room, ...) \
  int call given { \
    REAL(call); \
    if (counts_path(at, path) && fails(room)) return -1; \
    return real(__VA_ARGS__); \
  }
BY_FILE(fsync, (int file), 0, file)
BY_FILE(fdatasync, (int file), 0, file)
BY_FILE(ftruncate, (int file, off_t n), 0, file, n)
BY_FILE(ftruncate64, (int file, off64_t n), 0, file, n)
BY_PATH(truncate, (const char *path, off_t n), AT_FDCWD, 0, path, n)
BY_PATH(truncate64, (const char *path, off64_t n), AT_FDCWD, 0, path, n)
BY_PATH(rename, (const char *from, const char *path), AT_FDCWD, 0, from, path)
BY_PATH(renameat, (int a, const char *from, int b, const char *path), b, 0, a, from, b, path)
BY_PATH(mkdir, (const char *path, mode_t mode), AT_FDCWD, 1, path, mode)
BY_PATH(mkdirat, (int at, const char *path, mode_t mode), at, 1, at, path, mode)
BY_PATH(rmdir, (const char *path), AT_FDCWD, 0, path)
BY_PATH(unlink, (const char *path), AT_FDCWD, 0, path)
BY_PATH(unlinkat, (int at, const char *path, int flags), at, 0, at, path, flags)
BY_PATH(chmod, (const char *path, mode_t mode), AT_FDCWD, 0, path, mode)
BY_PATH(fchmodat, (int at, const char *path, mode_t mode, int flags), at, 0, at, path, mode, flags)

int posix_fallocate64(int file, off64_t at, off64_t n) {
  REAL(posix_fallocate64);
  if (counts_file(file) && fails(1)) return errno;
  return real(file, at, n);
}

static int64_t off_by(void) {
  if (!block || !block->jump_s) return 0;
  return (int64_t)(__sync_add_and_fetch(&block->asked, 1) % 3 - 1) * block->jump_s;
}
int clock_gettime(clockid_t id, struct timespec *now) {
  REAL(clock_gettime);
  int code = real(id, now);
  if (!code && id == CLOCK_REALTIME) now->tv_sec += off_by();
  return code;
}
int gettimeofday(struct timeval *now, void *zone) {
  REAL(gettimeofday);
  int code = real(now, zone);
  if (!code) now->tv_sec += off_by();
  return code;
}
time_t time(time_t *into) {
  REAL(time);
  time_t now = real(NULL) + off_by();
  if (into) *into = now;
  return now;
}
