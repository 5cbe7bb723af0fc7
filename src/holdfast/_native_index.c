/* The native part of reading git's index (holdfast/scan/user_git.py and git_index.py, which are the reference): its
   names, and what its digest is of. Only versions 2 and 3; version 4 is left to the Python code.

   The bytes are not trusted: every place is checked before it is read. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include "_native.h"

#include <stdint.h>
#include <string.h>

/* Where the fields of an entry are. Numbers are big-endian. */
enum { HEADER_BYTES = 12, ENTRY_MODE = 24, STAT_BYTES = 40, MODE_BYTES = 4 };
enum { EXTENDED = 0x40, SUBMODULE = 0xE, LEAST_HASH = 20, MOST_HASH = 32 };

typedef struct {
    const unsigned char *data;
    size_t size, hash_bytes;
    uint32_t left; /* entries */
    size_t at; /* the next one, which may be beyond the end after the last one */
} Index;

typedef struct {
    const unsigned char *mode; /* of 4 bytes */
    const unsigned char *identity; /* the object, the flags and the name: all that no look at files changes */
    size_t identity_size;
    const unsigned char *name; /* a NUL follows */
    size_t name_size;
} Entry;

static uint32_t read_u32(const unsigned char *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static int begin(Index *index, const Py_buffer *view, Py_ssize_t hash_bytes) {
    const unsigned char *data = view->buf;
    if (view->len < HEADER_BYTES || memcmp(data, "DIRC", 4) || hash_bytes < LEAST_HASH || hash_bytes > MOST_HASH)
        return 0;
    uint32_t version = read_u32(data + 4);
    *index = (Index){data, (size_t)view->len, (size_t)hash_bytes, read_u32(data + 8), HEADER_BYTES};
    return version == 2 || version == 3;
}

/* Read one entry; 0 if the index is damaged. */
static int next(Index *index, Entry *entry) {
    size_t flags = index->at + STAT_BYTES + index->hash_bytes;
    if (index->at > index->size || flags >= index->size)
        return 0;
    const unsigned char *first = index->data + index->at;
    size_t start = flags + (index->data[flags] & EXTENDED ? 4 : 2);
    const unsigned char *end = start < index->size ? memchr(index->data + start, 0, index->size - start) : NULL;
    if (!end)
        return 0;
    entry->mode = first + ENTRY_MODE;
    entry->identity = first + STAT_BYTES;
    entry->identity_size = (size_t)(end - entry->identity);
    entry->name = index->data + start;
    entry->name_size = (size_t)(end - entry->name);
    index->at += ((size_t)(end - first) + 8) & ~(size_t)7;
    index->left--;
    return 1;
}

static PyObject *damaged(void) {
    PyErr_SetString(PyExc_ValueError, "the index cannot be read");
    return NULL;
}

static int append(PyObject *names, PyObject *name) {
    int is_bad = !name || PyList_Append(names, name);
    Py_XDECREF(name);
    return !is_bad;
}

PyObject *index_names(PyObject *module, PyObject *args) {
    Py_buffer view;
    Py_ssize_t hash_bytes;
    Index index;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*n:index_names", &view, &hash_bytes))
        return NULL;
    PyObject *result = NULL, *names = PyList_New(0);
    int is_whole = begin(&index, &view, hash_bytes), has_memory = names != NULL;
    while (is_whole && has_memory && index.left) {
        Entry entry;
        if (!(is_whole = next(&index, &entry)) || !entry.name_size)
            continue;
        has_memory = append(names, PyBytes_FromStringAndSize((const char *)entry.name, (Py_ssize_t)entry.name_size));
        if (has_memory && entry.mode[2] >> 4 == SUBMODULE)
            has_memory = append(names, PyBytes_FromFormat("%s/", (const char *)entry.name));
    }
    if (!is_whole)
        damaged();
    else if (has_memory)
        result = Py_BuildValue("On", names, (Py_ssize_t)index.at);
    Py_XDECREF(names);
    PyBuffer_Release(&view);
    return result;
}

PyObject *index_identity(PyObject *module, PyObject *args) {
    Py_buffer view;
    Py_ssize_t hash_bytes;
    Index index;
    Entry entry;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*n:index_identity", &view, &hash_bytes))
        return NULL;
    PyObject *result = NULL, *identity = NULL;
    size_t size = HEADER_BYTES - 4;
    int is_whole = begin(&index, &view, hash_bytes);
    while (is_whole && index.left) {
        is_whole = next(&index, &entry);
        size += is_whole ? MODE_BYTES + 2 + entry.identity_size : 0;
    }
    if (!is_whole) {
        damaged();
    } else if ((identity = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size))) { /* less than the index itself */
        char *into = PyBytes_AsString(identity);
        memcpy(into, index.data + 4, HEADER_BYTES - 4);
        into += HEADER_BYTES - 4;
        begin(&index, &view, hash_bytes);
        while (index.left && next(&index, &entry)) {
            *into++ = 0;
            memcpy(into, entry.mode, MODE_BYTES);
            into += MODE_BYTES;
            *into++ = 0;
            memcpy(into, entry.identity, entry.identity_size);
            into += entry.identity_size;
        }
        result = Py_BuildValue("Nn", identity, (Py_ssize_t)index.at);
    }
    PyBuffer_Release(&view);
    return result;
}
