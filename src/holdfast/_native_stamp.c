/* The native part of a plan of an index: the stamps of the ordinary files of one folder, without the interpreter lock.

   `stamps` looks at each file once and writes its inode, size and times as text. What is no ordinary file, is larger
   than a limit, or cannot be looked at is left to the Python code (holdfast/indexing/sources.py), which is the
   reference. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#define _GNU_SOURCE
#include "_native.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { STAMP_BYTES = 4 * 20 + 3 }; /* four numbers of 64 bits, the sign included, and what separates them */
enum { FILES_AT_ONCE = 1024 };
enum { NOT_STAMPED, UNSETTLED, SETTLED }; /* `sources.py` has the same */

typedef struct {
    const char *path;
    PyObject *bytes; /* owned; what `path` is in, if that is not the name itself */
    unsigned char size, state;
    char stamp[STAMP_BYTES];
} File;

static char *put_number(char *at, uint64_t number) {
    char digits[20];
    int count = 0;
    do
        digits[count++] = (char)('0' + number % 10);
    while (number /= 10);
    while (count)
        *at++ = digits[--count];
    return at;
}

static char *put_signed(char *at, int64_t number) {
    if (number >= 0)
        return put_number(at, (uint64_t)number);
    *at++ = '-';
    return put_number(at, 0 - (uint64_t)number);
}

/* A time in nanoseconds; whether 64 bits can hold it. */
static int as_nanoseconds(struct timespec time, int64_t *found) {
    if (time.tv_sec > 9223372035 || time.tv_sec < -9223372035)
        return 0;
    *found = (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
    return 1;
}

static void stamp(File *file, int folder, int64_t settled_ns, int64_t most_bytes) {
    struct stat status;
    int64_t mtime, ctime;
    if (fstatat(folder, file->path, &status, AT_SYMLINK_NOFOLLOW) || !S_ISREG(status.st_mode)
        || (int64_t)status.st_size > most_bytes)
        return;
#ifdef __APPLE__
    if (!as_nanoseconds(status.st_mtimespec, &mtime) || !as_nanoseconds(status.st_ctimespec, &ctime))
        return;
#else
    if (!as_nanoseconds(status.st_mtim, &mtime) || !as_nanoseconds(status.st_ctim, &ctime))
        return;
#endif
    char *at = put_number(file->stamp, (uint64_t)status.st_ino);
    *at++ = '.';
    at = put_signed(at, (int64_t)status.st_size);
    *at++ = '.';
    at = put_signed(at, mtime);
    *at++ = '.';
    at = put_signed(at, ctime);
    file->size = (unsigned char)(at - file->stamp);
    file->state = mtime < settled_ns && ctime < settled_ns ? SETTLED : UNSETTLED;
}

/* Find the names of some files. Return 0 with an error set if one is no text of a name. */
static int take_names(File *files, PyObject *names, Py_ssize_t first, Py_ssize_t count) {
    for (Py_ssize_t at = 0; at < count; at++) {
        PyObject *name = PyList_GetItem(names, first + at); /* borrowed, and nothing else runs meanwhile */
        Py_ssize_t size = 0;
        files[at] = (File){.state = NOT_STAMPED};
        files[at].path = name && PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, &size) : NULL;
        if (files[at].path && strlen(files[at].path) == (size_t)size)
            continue;
        PyErr_Clear();
        if (!name || !PyUnicode_FSConverter(name, &files[at].bytes)
            || !(files[at].path = PyBytes_AsString(files[at].bytes))) /* refuses a NUL in it */
            return 0;
    }
    return 1;
}

static int give_stamps(const File *files, Py_ssize_t first, Py_ssize_t count, PyObject *stamps, char *states) {
    for (Py_ssize_t at = 0; at < count; at++) {
        PyObject *found = Py_None;
        if (files[at].state != NOT_STAMPED)
            found = PyUnicode_FromStringAndSize(files[at].stamp, files[at].size);
        else
            Py_INCREF(found);
        if (!found || PyList_SetItem(stamps, first + at, found)) /* takes `found` over */
            return 0;
        states[first + at] = (char)files[at].state;
    }
    return 1;
}

PyObject *stamps(PyObject *module, PyObject *args) {
    int folder;
    PyObject *names;
    long long settled_ns, most_bytes;
    (void)module;
    if (!PyArg_ParseTuple(args, "iO!LL:stamps", &folder, &PyList_Type, &names, &settled_ns, &most_bytes))
        return NULL;
    Py_ssize_t count = PyList_Size(names);
    Py_ssize_t room = count < FILES_AT_ONCE ? count : FILES_AT_ONCE;
    File *files = malloc(((size_t)room + 1) * sizeof(File));
    PyObject *found = PyList_New(count), *states = PyBytes_FromStringAndSize(NULL, count), *result = NULL;
    char *into = states ? PyBytes_AsString(states) : NULL;
    int is_done = files && found && into;
    if (!files)
        PyErr_NoMemory();
    /* The list is of the caller, and other threads run while files are looked at: its names are kept by `held`. */
    PyObject *held = is_done ? PyList_GetSlice(names, 0, count) : NULL;
    is_done = held != NULL;
    for (Py_ssize_t first = 0; is_done && first < count; first += room) {
        Py_ssize_t some = count - first < room ? count - first : room;
        for (Py_ssize_t at = 0; at < some; at++)
            files[at].bytes = NULL;
        is_done = take_names(files, held, first, some);
        if (is_done) {
            Py_BEGIN_ALLOW_THREADS
            for (Py_ssize_t at = 0; at < some; at++)
                stamp(&files[at], folder, settled_ns, most_bytes);
            Py_END_ALLOW_THREADS
            is_done = give_stamps(files, first, some, found, into);
        }
        for (Py_ssize_t at = 0; at < some; at++)
            Py_XDECREF(files[at].bytes);
    }
    if (is_done)
        result = Py_BuildValue("OO", found, states);
    Py_XDECREF(held);
    Py_XDECREF(found);
    Py_XDECREF(states);
    free(files);
    return result;
}
