/* The n-th operation on files below a folder goes wrong: loaded before the C library, it counts
 * operations of all processes together in the memory that the file in $CHAOS_FAULTS is.
 * `faults.py` lays that out, too. With $CHAOS_CLOCK, clock.c is beside it in one library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

enum kind { OPEN = 1, CREATE, WRITE, SYNC, RENAME, REMOVE, MKDIR, MAP, FORK, SIZE, LOCK, MODE };
enum action { NOTHING, FAIL, SHORT, KILL, TORN, STOP, STEP };
enum { MOST = 1 << 14, NAME = 248 };

struct operation {
	int32_t kind, pid;
	char name[NAME];
};

static struct control {
	int32_t armed, action, error, lasts, fired;
	uint32_t kinds, at, count;
	int64_t step_ns;
	char folder[NAME];
	struct operation operations[MOST];
} *control;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("CHAOS_FAULTS");
	int file = path ? REAL(open)(path, O_RDWR | O_CLOEXEC) : -1;
	void *found = file < 0 ? MAP_FAILED
			       : REAL(mmap)(0, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);

	if (file >= 0)
		close(file);
	control = found == MAP_FAILED ? 0 : found;
}

static void step_clock(void)
{
	const char *path = getenv("CHAOS_CLOCK");
	int file = path ? REAL(open)(path, O_WRONLY | O_CLOEXEC) : -1;

	if (file >= 0) {
		(void)!REAL(pwrite)(file, &control->step_ns, sizeof control->step_ns, 0);
		close(file);
	}
}

/* What is to be done instead of an operation: nothing, FAIL with errno, SHORT or TORN. */
static enum action at(enum kind kind, const char *path)
{
	uint32_t number;

	if (!control || !control->armed)
		return NOTHING;
	if (path && strncmp(path, control->folder, strlen(control->folder)))
		return NOTHING;
	number = __atomic_add_fetch(&control->count, 1, __ATOMIC_SEQ_CST);
	if (number <= MOST) {
		struct operation *mine = &control->operations[number - 1];

		mine->kind = kind;
		mine->pid = getpid();
		snprintf(mine->name, NAME, "%s", path ? path + strlen(control->folder) : "");
	}
	if (!control->at || number < control->at || (number > control->at && !control->lasts))
		return NOTHING;
	if (!(control->kinds >> kind & 1))
		return NOTHING;
	control->fired++;
	if (control->action == KILL)
		kill(getpid(), SIGKILL);
	if (control->action == STOP)
		raise(SIGSTOP);
	if (control->action == STEP)
		step_clock();
	errno = control->error;
	return control->action;
}

static enum action at_path(enum kind kind, int folder, const char *name)
{
	char path[8192] = "", link[64];
	int saved = errno;
	ssize_t length = 0;

	if (!control || !control->armed)
		return NOTHING;
	if (name[0] != '/') {
		snprintf(link, sizeof link, folder == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", folder);
		length = readlink(link, path, 4000);
		length = length < 0 ? 0 : length;
		path[length++] = '/';
	}
	snprintf(path + length, 4096, "%s", name);
	errno = saved;
	return at(kind, path);
}

static enum action at_file(enum kind kind, int file)
{
	char path[4096] = "", link[64];
	int saved = errno;

	if (!control || !control->armed)
		return NOTHING;
	snprintf(link, sizeof link, "/proc/self/fd/%d", file);
	if (readlink(link, path, sizeof path - 1) < 0)
		path[0] = 0;
	errno = saved;
	return at(kind, path);
}

#define OPENED(name)                                                                               \
	int name(const char *path, int flags, ...)                                                 \
	{                                                                                          \
		va_list more;                                                                      \
		va_start(more, flags);                                                             \
		mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;            \
		va_end(more);                                                                      \
		if (at_path(flags & O_CREAT ? CREATE : OPEN, AT_FDCWD, path) == FAIL)              \
			return -1;                                                                 \
		return REAL(name)(path, flags, mode);                                              \
	}
OPENED(open)
OPENED(open64)

#define OPENED_AT(name)                                                                            \
	int name(int folder, const char *path, int flags, ...)                                     \
	{                                                                                          \
		va_list more;                                                                      \
		va_start(more, flags);                                                             \
		mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;            \
		va_end(more);                                                                      \
		if (at_path(flags & O_CREAT ? CREATE : OPEN, folder, path) == FAIL)                \
			return -1;                                                                 \
		return REAL(name)(folder, path, flags, mode);                                      \
	}
OPENED_AT(openat)
OPENED_AT(openat64)

/* Half of it is written at a SHORT write, and before a process is TORN off. */
#define WRITTEN(type, name, file, length, parameters, arguments)                                   \
	type name parameters                                                                       \
	{                                                                                          \
		enum action action = at_file(WRITE, file);                                         \
		type done;                                                                         \
		if (action == FAIL)                                                                \
			return -1;                                                                 \
		if (action == SHORT || action == TORN)                                             \
			length = length > 1 ? length / 2 : length;                                 \
		done = REAL(name) arguments;                                                       \
		if (action == TORN)                                                                \
			kill(getpid(), SIGKILL);                                                   \
		return done;                                                                       \
	}
WRITTEN(ssize_t, write, file, length, (int file, const void *from, size_t length), (file, from, length))
WRITTEN(ssize_t, pwrite, file, length, (int file, const void *from, size_t length, off_t place),
	(file, from, length, place))
WRITTEN(ssize_t, pwrite64, file, length, (int file, const void *from, size_t length, off64_t place),
	(file, from, length, place))
WRITTEN(ssize_t, sendfile, file, length, (int file, int from, off_t *place, size_t length),
	(file, from, place, length))
WRITTEN(ssize_t, sendfile64, file, length, (int file, int from, off64_t *place, size_t length),
	(file, from, place, length))
WRITTEN(ssize_t, copy_file_range, file, length,
	(int from, off64_t *start, int file, off64_t *place, size_t length, unsigned flags),
	(from, start, file, place, length, flags))

#define ON_FILE(kind, name, file, parameters, arguments)                                           \
	int name parameters                                                                        \
	{                                                                                          \
		return at_file(kind, file) == FAIL ? -1 : REAL(name) arguments;                    \
	}
ON_FILE(SYNC, fsync, file, (int file), (file))
ON_FILE(SYNC, fdatasync, file, (int file), (file))
ON_FILE(SIZE, ftruncate, file, (int file, off_t size), (file, size))
ON_FILE(SIZE, ftruncate64, file, (int file, off64_t size), (file, size))
ON_FILE(SIZE, fallocate, file, (int file, int mode, off_t from, off_t size), (file, mode, from, size))
ON_FILE(SIZE, fallocate64, file, (int file, int mode, off64_t from, off64_t size), (file, mode, from, size))
ON_FILE(LOCK, flock, file, (int file, int how), (file, how))
ON_FILE(MODE, fchmod, file, (int file, mode_t mode), (file, mode))

/* It returns the error instead of setting it. */
int posix_fallocate(int file, off_t from, off_t size)
{
	return at_file(SIZE, file) == FAIL ? control->error : REAL(posix_fallocate)(file, from, size);
}

#define ON_PATH(kind, name, folder, path, parameters, arguments)                                   \
	int name parameters                                                                        \
	{                                                                                          \
		return at_path(kind, folder, path) == FAIL ? -1 : REAL(name) arguments;            \
	}
ON_PATH(RENAME, rename, AT_FDCWD, to, (const char *from, const char *to), (from, to))
ON_PATH(RENAME, renameat, folder, to, (int old, const char *from, int folder, const char *to),
	(old, from, folder, to))
ON_PATH(RENAME, renameat2, folder, to,
	(int old, const char *from, int folder, const char *to, unsigned flags),
	(old, from, folder, to, flags))
ON_PATH(RENAME, link, AT_FDCWD, to, (const char *from, const char *to), (from, to))
ON_PATH(RENAME, linkat, folder, to,
	(int old, const char *from, int folder, const char *to, int flags), (old, from, folder, to, flags))
ON_PATH(REMOVE, unlink, AT_FDCWD, path, (const char *path), (path))
ON_PATH(REMOVE, unlinkat, folder, path, (int folder, const char *path, int flags), (folder, path, flags))
ON_PATH(REMOVE, rmdir, AT_FDCWD, path, (const char *path), (path))
ON_PATH(MKDIR, mkdir, AT_FDCWD, path, (const char *path, mode_t mode), (path, mode))
ON_PATH(MKDIR, mkdirat, folder, path, (int folder, const char *path, mode_t mode), (folder, path, mode))
ON_PATH(MODE, chmod, AT_FDCWD, path, (const char *path, mode_t mode), (path, mode))

#define MAPPED(name, offset)                                                                       \
	void *name(void *where, size_t size, int how, int flags, int file, offset place)           \
	{                                                                                          \
		if (file >= 0 && at_file(MAP, file) == FAIL)                                       \
			return MAP_FAILED;                                                         \
		return REAL(name)(where, size, how, flags, file, place);                           \
	}
MAPPED(mmap, off_t)
MAPPED(mmap64, off64_t)

pid_t fork(void)
{
	return at(FORK, 0) == FAIL ? -1 : REAL(fork)();
}

/* The parent must not return from here while a child is on its stack. */
pid_t vfork(void)
{
	return fork();
}
