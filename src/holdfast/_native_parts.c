/* The native part of loading states: the pieces of a state, put together from rows as they are stored.

   `join_parts` knows what the Python code (holdfast/flow/segments.py, packs.py), which is the reference, writes. Whatever
   else is stored, or does not fit together, is left to that code: it says what is wrong. Every size is checked before it
   is used, since the bytes come from a disk or a server. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include "_native.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 16, PACK_NAME_BYTES = 8, ENTRY_BYTES = 28, PACK_HEADER_BYTES = 5 };
enum { MOST_LEVELS = 32, MOST_PROBES = 256, MORE_PIECES = 64 };

typedef const unsigned char *Bytes;

typedef struct {
    Bytes start;
    size_t size;
} Span;

typedef struct {
    Bytes name; /* NULL: an empty slot */
    Span refs, data;
} Part;

typedef struct {
    Part *slots;
    size_t mask;
    unsigned char *into;
    size_t at, size;
    int64_t left; /* how many more pieces there may be: each has at least one byte */
    PyObject *open; /* opens what is not plain */
} State;

static uint64_t big_endian(Bytes at, int bytes) {
    uint64_t number = 0;
    while (bytes--)
        number = number << 8 | *at++;
    return number;
}

/* The slot of a name, or an empty one for it; NULL if too many names are alike, which those of contents never are. */
static Part *slot_of(const State *state, Bytes name) {
    uint64_t key;
    memcpy(&key, name, sizeof key);
    size_t at = (size_t)((key * UINT64_C(0x9E3779B97F4A7C15)) >> 20);
    for (int tries = 0; tries < MOST_PROBES; tries++, at++) {
        Part *slot = &state->slots[at & state->mask];
        if (!slot->name || !memcmp(slot->name, name, NAME_BYTES))
            return slot;
    }
    return NULL;
}

static int add_part(const State *state, Bytes name, Span refs, Span data) {
    Part *slot = slot_of(state, name);
    if (slot)
        *slot = (Part){name, refs, data};
    return slot != NULL;
}

/* How many parts a pack says it has; -1 if that cannot be. */
static int64_t count_of(Span pack) {
    if (pack.size < PACK_HEADER_BYTES || pack.start[0] != 0xdd)
        return -1;
    uint64_t items = big_endian(pack.start + 1, 4);
    return items % 3 || items / 3 > (pack.size - PACK_HEADER_BYTES) / ENTRY_BYTES ? -1 : (int64_t)(items / 3);
}

static int read_sized(Bytes *at, Bytes end, Span *found) {
    if (end - *at < 5 || **at != 0xc6)
        return 0;
    found->size = (size_t)big_endian(*at + 1, 4);
    *at += 5;
    if (found->size > (size_t)(end - *at))
        return 0;
    found->start = *at;
    *at += found->size;
    return 1;
}

static int add_pack(const State *state, Span pack) {
    int64_t count = count_of(pack);
    Bytes at = pack.start + PACK_HEADER_BYTES, end = pack.start + pack.size;
    while (count-- > 0) {
        if (end - at < 2 + NAME_BYTES || at[0] != 0xc4 || at[1] != NAME_BYTES)
            return 0;
        Bytes name = at + 2;
        Span refs, data;
        at += 2 + NAME_BYTES;
        if (!read_sized(&at, end, &refs) || !read_sized(&at, end, &data) || !add_part(state, name, refs, data))
            return 0;
    }
    return at == end;
}

/* One item of a shape: 1 for a number, 2 for bytes, 0 for anything else. */
static int read_item(Bytes *at, Bytes end, int64_t *number, Span *bytes) {
    if (*at >= end)
        return 0;
    unsigned char first = *(*at)++;
    if (first <= 0x7f || first >= 0xe0) {
        *number = first <= 0x7f ? first : (int64_t)first - 0x100;
        return 1;
    }
    if (first >= 0xcc && first <= 0xd3) {
        int size = 1 << (first & 3);
        if (end - *at < size)
            return 0;
        uint64_t found = big_endian(*at, size);
        *at += size;
        if (first >= 0xd0 && size < 8 && found >> (8 * size - 1))
            found |= UINT64_MAX << (8 * size);
        if (first < 0xd0 && found > INT64_MAX)
            return 0;
        memcpy(number, &found, sizeof found);
        return 1;
    }
    if (first < 0xc4 || first > 0xc6)
        return 0;
    int size = 1 << (first - 0xc4);
    if (end - *at < size)
        return 0;
    bytes->size = (size_t)big_endian(*at, size);
    *at += size;
    if (bytes->size > (size_t)(end - *at))
        return 0;
    bytes->start = *at;
    *at += bytes->size;
    return 2;
}

static int append(State *state, Span piece) {
    if (piece.size > state->size - state->at)
        return 0;
    memcpy(state->into + state->at, piece.start, piece.size);
    state->at += piece.size;
    return 1;
}

/* The content of an envelope. What is not plain is opened by Python; the caller releases `held`. */
static int opened(const State *state, Span stored, Span *content, PyObject **held) {
    if (stored.size && stored.start[0] == 0) {
        *content = (Span){stored.start + 1, stored.size - 1};
        return 1;
    }
    char *start;
    Py_ssize_t size;
    *held = PyObject_CallFunction(state->open, "y#", (const char *)stored.start, (Py_ssize_t)stored.size);
    if (!*held || PyBytes_AsStringAndSize(*held, &start, &size) < 0)
        return 0;
    *content = (Span){(Bytes)start, (size_t)size};
    return 1;
}

static int lay_out(State *state, Span refs, Span shape, int skipped, int level);

static int lay_out_part(State *state, const Part *part, int is_group, int level) {
    PyObject *held = NULL;
    Span content;
    int is_done = opened(state, part->data, &content, &held);
    if (is_done)
        is_done = is_group ? lay_out(state, part->refs, content, 0, level + 1) : append(state, content);
    Py_XDECREF(held);
    return is_done;
}

/* Lay out the pieces of a shape, of which the first `skipped` items are other numbers. 0 if something is not as it
   should be, or an exception is set. */
static int lay_out(State *state, Span refs, Span shape, int skipped, int level) {
    Bytes at = shape.start, end = at + shape.size, name = refs.start, last = name + refs.size;
    uint64_t count;
    if (at == end)
        return 0;
    unsigned char first = *at++;
    if (first >= 0x90 && first <= 0x9f) {
        count = first & 0xf;
    } else {
        int size = first == 0xdc ? 2 : first == 0xdd ? 4 : 0;
        if (!size || end - at < size)
            return 0;
        count = big_endian(at, size);
        at += size;
    }
    for (uint64_t done = 0; done < count; done++) {
        int64_t number = 0;
        Span bytes;
        int kind = read_item(&at, end, &number, &bytes);
        if (!kind)
            return 0;
        if (done < (uint64_t)skipped) {
            if (kind != 1)
                return 0;
            continue;
        }
        if (kind == 2) {
            if (--state->left < 0 || !append(state, bytes))
                return 0;
            continue;
        }
        int64_t most = (last - name) / NAME_BYTES;
        if (number > most || number < -most || level > MOST_LEVELS)
            return 0;
        int is_group = number < 0;
        int64_t names = is_group ? -number : number;
        if ((state->left -= names) < 0)
            return 0;
        for (; names > 0; names--, name += NAME_BYTES) {
            const Part *part = slot_of(state, name);
            if (!part || !part->name || !lay_out_part(state, part, is_group, level))
                return 0;
        }
    }
    return at == end;
}

static int span_of(PyObject *row, Py_ssize_t column, Span *found) {
    PyObject *value = PyTuple_GetItem(row, column);
    char *start;
    Py_ssize_t size;
    if (!value || !PyBytes_CheckExact(value) || PyBytes_AsStringAndSize(value, &start, &size) < 0)
        return 0;
    *found = (Span){(Bytes)start, (size_t)size};
    return 1;
}

/* Take in all rows: first how many parts they have, then where each is. */
static int take_rows(State *state, PyObject *rows) {
    Py_ssize_t count = PyTuple_Size(rows);
    for (int pass = 0; pass < 2; pass++) {
        uint64_t parts = 0;
        for (Py_ssize_t at = 0; at < count; at++) {
            PyObject *row = PyTuple_GetItem(rows, at);
            Span name, refs, data;
            if (!row || !PyTuple_Check(row) || PyTuple_Size(row) != 3)
                return 0;
            if (!span_of(row, 0, &name) || !span_of(row, 1, &refs) || !span_of(row, 2, &data))
                return 0;
            int is_pack = name.size == PACK_NAME_BYTES;
            int64_t own = is_pack ? count_of(data) : 1;
            if (own < 0 || (is_pack && refs.size) || (!is_pack && name.size != NAME_BYTES))
                return 0;
            parts += (uint64_t)own;
            if (pass && !(is_pack ? add_pack(state, data) : add_part(state, name.start, refs, data)))
                return 0;
        }
        if (!pass) {
            size_t slots = 16;
            while (slots < 2 * parts)
                slots *= 2;
            if (!(state->slots = calloc(slots, sizeof(Part))))
                return 0;
            state->mask = slots - 1;
        }
    }
    return 1;
}

PyObject *join_parts(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *rows, *refs, *shape, *joined = NULL;
    Py_ssize_t size;
    State state = {0};
    char *start;
    int is_done = 0;
    /* rows: a tuple of tuples of bytes, so that nothing in them can change while Python opens a part */
    if (!PyArg_ParseTuple(args, "OSSnO", &rows, &refs, &shape, &size, &state.open))
        return NULL;
    if (!PyTuple_Check(rows) || size < 0) {
        PyErr_SetString(PyExc_TypeError, "rows must be a tuple, and the size not negative");
        return NULL;
    }
    if (take_rows(&state, rows) && (joined = PyBytes_FromStringAndSize(NULL, size))) {
        Span own_refs = {0}, own_shape = {0};
        Py_ssize_t length;
        state.into = (unsigned char *)PyBytes_AsString(joined);
        state.size = (size_t)size;
        state.left = (int64_t)size + MORE_PIECES;
        if (PyBytes_AsStringAndSize(refs, &start, &length) == 0)
            own_refs = (Span){(Bytes)start, (size_t)length};
        if (PyBytes_AsStringAndSize(shape, &start, &length) == 0)
            own_shape = (Span){(Bytes)start, (size_t)length};
        is_done = lay_out(&state, own_refs, own_shape, 3, 0) && state.at == state.size;
    }
    free(state.slots);
    if (is_done)
        return joined;
    Py_XDECREF(joined);
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_MemoryError))
        return NULL;
    PyErr_Clear();
    Py_RETURN_NONE;
}
