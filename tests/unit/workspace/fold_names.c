/* A file system that does not tell case apart, nor the two ways to write an e with an acute accent, for one process:
   calls that name a file below FOLD_ROOT otherwise find the one that is there. For tests on machines that cannot mount
   such a file system. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int below(int fd) {
    char link[64], path[PATH_MAX];
    const char *root = getenv("FOLD_ROOT");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = root ? REAL(readlink)(link, path, sizeof path - 1) : -1;
    if (size < 0) return 0;
    path[size] = 0;
    return strncmp(path, root, strlen(root)) == 0;
}

static const char *composed(const char *name, char *room) {
    char *end = room;
    for (; *name; name++, end++) {
        *end = *name;
        if (strncmp(name, "e\xCC\x81", 3) == 0) { *end++ = '\xC3'; *end = '\xA9'; name += 2; }
    }
    *end = 0;
    return room;
}

static int same(const char *one, const char *other) {
    char first[NAME_MAX + 1], second[NAME_MAX + 1];
    return strcasecmp(composed(one, first), composed(other, second)) == 0;
}

/* The name that is there; names are single components, because the program opens folders one at a time. */
static const char *fold(int fd, const char *name, char *room) {
    if (fd < 0 || !name || !*name || strchr(name, '/') || !below(fd)) return name;
    int copy = REAL(openat)(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = copy < 0 ? NULL : fdopendir(copy);
    struct dirent *entry;
    const char *found = name;
    while (folder && (entry = readdir(folder)))
        if (same(entry->d_name, name)) {
            if (strcmp(entry->d_name, name) == 0) { found = name; break; }
            found = strcpy(room, entry->d_name);
        }
    if (folder) closedir(folder);
    return found;
}

#define FOLDED(fd, name) fold(fd, name, (char[NAME_MAX + 1]){0})

#define OPEN(symbol)                                                          \
    int symbol(int fd, const char *name, int flags, ...) {                    \
        va_list more;                                                         \
        va_start(more, flags);                                                \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more);                                                         \
        return REAL(symbol)(fd, FOLDED(fd, name), flags, mode);               \
    }
OPEN(openat)
OPEN(openat64)

int fstatat(int fd, const char *name, struct stat *found, int flags) {
    return REAL(fstatat)(fd, FOLDED(fd, name), found, flags);
}
int fstatat64(int fd, const char *name, struct stat64 *found, int flags) {
    return REAL(fstatat64)(fd, FOLDED(fd, name), found, flags);
}
int unlinkat(int fd, const char *name, int flags) { return REAL(unlinkat)(fd, FOLDED(fd, name), flags); }
int mkdirat(int fd, const char *name, mode_t mode) { return REAL(mkdirat)(fd, FOLDED(fd, name), mode); }
int utimensat(int fd, const char *name, const struct timespec *times, int flags) {
    return REAL(utimensat)(fd, FOLDED(fd, name), times, flags);
}
int fchownat(int fd, const char *name, uid_t uid, gid_t gid, int flags) {
    return REAL(fchownat)(fd, FOLDED(fd, name), uid, gid, flags);
}
int renameat(int from, const char *old, int to, const char *new) {
    return REAL(renameat)(from, FOLDED(from, old), to, FOLDED(to, new));
}
int renameat2(int from, const char *old, int to, const char *new, unsigned flags) {
    return REAL(renameat2)(from, FOLDED(from, old), to, FOLDED(to, new), flags);
}
int linkat(int from, const char *old, int to, const char *new, int flags) {
    return REAL(linkat)(from, FOLDED(from, old), to, FOLDED(to, new), flags);
}
