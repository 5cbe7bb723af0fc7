/* The native part of reading: the content of ordinary small files of one folder, without the interpreter lock.

   `read_files` opens, reads and `fstat`s files, and gives the content of those that are ordinary: as the walk saw them
   before and after (P2), owned by the owner of the workspace, without holes and extended attributes. Whatever else a
   file is, or whatever fails, is left to the Python code (holdfast/scan/read.py), which is the reference. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#define _GNU_SOURCE /* O_NOATIME */
#include "_native.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#ifndef O_NOATIME
#define O_NOATIME 0
#endif

/* The columns of an entry in `Folder.rows`, 64 bits each. */
enum { ROW_MODE, ROW_INODE, ROW_SIZE, ROW_MTIME, ROW_CTIME, ROW_NLINK, ROW_FLAGS, ROW_WIDTH };

enum { MOST_FILES = 4096, NOT_READ = -1 };
static const char MAGIC[] = "SQLite format 3"; /* with its NUL: 16 bytes */

typedef struct {
    PyObject *name; /* bytes; owned */
    PyObject *content; /* bytes; owned, filled without the interpreter lock */
    const char *path;
    char *into;
    const int64_t *row;
    int kept; /* a descriptor that must not be closed here, or NOT_READ */
    int is_read;
} File;

typedef struct {
    int folder;
    uint32_t uid, gid;
} Place;

static int is_time(struct timespec time, int64_t expected) {
    if (time.tv_sec > 9223372035 || time.tv_sec < -9223372035)
        return 0;
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec == expected;
}

static int is_ordinary(int fd, const struct stat *status, const int64_t *row, const Place *place) {
#ifdef __APPLE__
    if (!is_time(status->st_mtimespec, row[ROW_MTIME]) || !is_time(status->st_ctimespec, row[ROW_CTIME]))
        return 0;
    ssize_t attributes = flistxattr(fd, NULL, 0, 0);
#else
    if (!is_time(status->st_mtim, row[ROW_MTIME]) || !is_time(status->st_ctim, row[ROW_CTIME]))
        return 0;
    ssize_t attributes = flistxattr(fd, NULL, 0);
#endif
    return (int64_t)status->st_mode == row[ROW_MODE] && (int64_t)status->st_ino == row[ROW_INODE]
        && (int64_t)status->st_size == row[ROW_SIZE] && status->st_uid == place->uid && status->st_gid == place->gid
        && (int64_t)status->st_blocks * 512 >= (int64_t)status->st_size - 4096 /* as `extras_of`: no hole */
        && (attributes == 0 || (attributes < 0 && errno == ENOTSUP));
}

/* Read one file. A descriptor of what is or may be a database stays open: closing it could lose locks (P1). */
static void read_file(File *file, const Place *place) {
    const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    size_t size = (size_t)file->row[ROW_SIZE];
    char empty;
    char *into = size ? file->into : &empty; /* Python shares one object of all empty bytes */
    int fd = openat(place->folder, file->path, flags | O_NOATIME);
    if (fd < 0 && errno == EPERM) /* only the owner may open with O_NOATIME */
        fd = openat(place->folder, file->path, flags);
    if (fd < 0)
        return;
    /* One byte more, so that a file that grew is noticed; it comes into the place of the NUL behind the content. With
       `pread`, which fails for what is a pipe by now: its bytes are for another program (P1). */
    ssize_t count = pread(fd, into, size + 1, 0);
    into[size] = 0;
    if (count < 0 || (size_t)count != size || (size >= sizeof MAGIC && !memcmp(file->into, MAGIC, sizeof MAGIC))) {
        file->kept = fd;
        return;
    }
    struct stat status;
    file->is_read = !fstat(fd, &status) && is_ordinary(fd, &status, file->row, place);
    close(fd);
}

/* What Python gets for a file: its content; a descriptor to close with care; None. */
static PyObject *result_of(File *file) {
    if (file->kept != NOT_READ) {
        PyObject *number = PyLong_FromLong(file->kept);
        if (number)
            file->kept = NOT_READ; /* it belongs to the caller now */
        return number;
    }
    PyObject *found = file->is_read ? file->content : Py_None;
    Py_INCREF(found);
    return found;
}

/* Take names and rows apart, and make room for the contents. */
static int prepare(File *files, Py_ssize_t count, PyObject *names, PyObject *places, const Py_buffer *rows,
                   Py_ssize_t most_bytes) {
    if ((uintptr_t)rows->buf % _Alignof(int64_t)) {
        PyErr_SetString(PyExc_ValueError, "the rows are not aligned");
        return 0;
    }
    for (Py_ssize_t at = 0; at < count; at++) {
        File *file = &files[at];
        PyObject *number = PyList_GetItem(places, at); /* borrowed */
        Py_ssize_t place = number ? PyLong_AsSsize_t(number) : -1;
        if (place < 0 || place >= rows->len / (8 * ROW_WIDTH) || place >= PyList_Size(names)) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "there is no such entry");
            return 0;
        }
        file->row = (const int64_t *)rows->buf + ROW_WIDTH * place;
        PyObject *name = PyList_GetItem(names, place);
        if (!name || !PyUnicode_FSConverter(name, &file->name))
            return 0;
        file->path = PyBytes_AsString(file->name);
        if (!file->path || file->row[ROW_SIZE] < 0 || file->row[ROW_SIZE] > most_bytes) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "the file is too large");
            return 0;
        }
        file->content = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)file->row[ROW_SIZE]);
        file->into = file->content ? PyBytes_AsString(file->content) : NULL;
        if (!file->into)
            return 0;
    }
    return 1;
}

PyObject *read_files(PyObject *module, PyObject *args) {
    PyObject *names, *places, *result = NULL;
    Py_buffer rows;
    Py_ssize_t most_bytes;
    Place place;
    (void)module;
    if (!PyArg_ParseTuple(args, "iO!O!y*IIn:read_files", &place.folder, &PyList_Type, &names, &PyList_Type, &places,
                          &rows, &place.uid, &place.gid, &most_bytes))
        return NULL;
    Py_ssize_t count = PyList_Size(places);
    File *files = count <= MOST_FILES ? calloc((size_t)count + 1, sizeof(File)) : NULL;
    if (!files) {
        PyBuffer_Release(&rows);
        return count > MOST_FILES ? PyErr_Format(PyExc_ValueError, "too many files") : PyErr_NoMemory();
    }
    for (Py_ssize_t at = 0; at < count; at++)
        files[at].kept = NOT_READ;
    if (prepare(files, count, names, places, &rows, most_bytes)) {
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t at = 0; at < count; at++)
            read_file(&files[at], &place);
        Py_END_ALLOW_THREADS
        result = PyList_New(count);
        for (Py_ssize_t at = 0; result && at < count; at++) {
            PyObject *found = result_of(&files[at]);
            if (!found || PyList_SetItem(result, at, found)) /* takes `found` over */
                Py_CLEAR(result);
        }
    }
    for (Py_ssize_t at = 0; at < count; at++) {
        Py_XDECREF(files[at].name);
        Py_XDECREF(files[at].content);
    }
    free(files);
    PyBuffer_Release(&rows);
    return result;
}
