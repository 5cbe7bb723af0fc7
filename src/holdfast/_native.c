/* The native part of a scan: which folders of the scan cache are, with certainty, as they were.

   `sweep` compares every folder of a cache (holdfast/scan/cache.py, format version 5) and every file in it with the
   disk, in several threads and without the interpreter lock. It also finds what is plain: unchanged folders about
   which nothing has to be asked but whether the same rules still apply. It decides nothing else: a folder that differs
   in any way, or cannot be looked at for any reason, is left to the Python code, which is the reference.

   The bytes of the cache are not trusted: every length is checked before it is used. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#define _GNU_SOURCE /* O_DIRECTORY and the like under -std=c11 */
#include "_native.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Where the fields of a record are: `_HEAD` in cache.py. Numbers are little-endian and not aligned. */
enum {
    DEVICE = 0, INODE = 8, MODE = 16, MTIME = 20, CTIME = 28, MARKS = 36,
    RULES = 37, TREE = 53, ATTRS = 73, IGNORED_BYTES = 93, IGNORED_COUNT = 101,
    PATH_SIZE = 105, FOLDERS_SIZE = 109, DETAILS_SIZE = 113, NAMES_SIZE = 117, ENTRIES = 121,
    HEAD_SIZE = 125
};
enum { RULES_BYTES = 16, OID_BYTES = 20 };
enum { IS_TRUSTED = 1, IS_LINKED = 2, IS_SETTLED = 4, HAS_SOURCES = 16 + 32 + 64, IS_LIKE_GIT = 128 }; /* of MARKS */

/* A verdict, of these bits; `sweep.py` has the same. */
enum { UNCHANGED = 1, PLAIN = 2, PLAIN_BELOW = 4 };

/* The columns of an entry, 64 bits each. */
enum { ROW_MODE, ROW_INODE, ROW_SIZE, ROW_MTIME, ROW_CTIME, ROW_NLINK, ROW_FLAGS, ROW_WIDTH };
enum { ROW_BYTES = 8 * ROW_WIDTH, CONTENT_BYTES = 20 };

enum { MOST_THREADS = 8, FOLDERS_AT_ONCE = 16, ENTRIES_FOR_THREADS = 2000, LONGEST_PATH = 4096, LONGEST_NAME = 1024 };

typedef struct {
    const unsigned char *head;
    const unsigned char *path; /* not terminated */
    const unsigned char *names; /* separated by NUL, the last one not terminated */
    const unsigned char *rows;
    uint32_t path_size, names_size, entries;
} Record;

/* What Python gets of a record beside its verdict; `sweep.py` reads the same. */
typedef struct {
    uint64_t start; /* in the bytes of the cache */
    uint32_t parent; /* its number, smaller than the own one; NO_PARENT */
    uint32_t below; /* how many records are below it */
} Relation;
enum { RELATION_BYTES = 16 };
_Static_assert(sizeof(Relation) == RELATION_BYTES, "Relation has no padding");
static const uint32_t NO_PARENT = UINT32_MAX;

typedef struct {
    const Record *records;
    unsigned char *verdicts;
    size_t count;
    int root;
    atomic_size_t next;
} Job;

static uint32_t read_u32(const unsigned char *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static int64_t read_i64(const unsigned char *at) {
    int64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

/* A time in nanoseconds; INT64_MIN if that is more than 64 bits can hold. */
static int64_t nanoseconds(struct timespec time) {
    if (time.tv_sec > 9223372035 || time.tv_sec < -9223372035)
        return INT64_MIN;
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static int has_times(const struct stat *status, int64_t mtime, int64_t ctime) {
#ifdef __APPLE__
    int64_t mtime_now = nanoseconds(status->st_mtimespec), ctime_now = nanoseconds(status->st_ctimespec);
#else
    int64_t mtime_now = nanoseconds(status->st_mtim), ctime_now = nanoseconds(status->st_ctim);
#endif
    return mtime_now == mtime && ctime_now == ctime && mtime_now != INT64_MIN && ctime_now != INT64_MIN;
}

static int is_same_entry(int folder, const char *name, const unsigned char *row) {
    struct stat status;
    if (fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW))
        return 0;
    return (int64_t)status.st_mode == read_i64(row + 8 * ROW_MODE)
        && (int64_t)status.st_ino == read_i64(row + 8 * ROW_INODE)
        && (int64_t)status.st_size == read_i64(row + 8 * ROW_SIZE)
        && has_times(&status, read_i64(row + 8 * ROW_MTIME), read_i64(row + 8 * ROW_CTIME));
}

static int has_same_entries(int folder, const Record *record) {
    const unsigned char *name = record->names, *end = record->names + record->names_size;
    const unsigned char *row = record->rows;
    for (uint32_t left = record->entries; left; left--, row += ROW_BYTES) {
        if (left > 1) { /* a NUL follows: `find_records` has counted them */
            if (!is_same_entry(folder, (const char *)name, row))
                return 0;
            name += strlen((const char *)name) + 1;
        } else {
            char last[LONGEST_NAME];
            size_t size = (size_t)(end - name);
            if (size >= sizeof last)
                return 0;
            memcpy(last, name, size);
            last[size] = 0;
            if (!is_same_entry(folder, last, row))
                return 0;
        }
    }
    return 1;
}

/* Whether a folder and every known file in it are as the cache has them.

   It is opened for reading, as the walk does: a folder that this user cannot read is for the walk to report (P4).
   Links above it may be followed: device and inode tell that it is the same folder, and the walk uses the verdict
   only if it comes to this path through folders that still contain it. */
static int is_unchanged(int root, const Record *record) {
    const unsigned char *head = record->head;
    unsigned char marks = head[MARKS];
    if (!(marks & IS_TRUSTED) || !(marks & IS_SETTLED) || marks & IS_LIKE_GIT || record->path_size >= LONGEST_PATH)
        return 0;
    char path[LONGEST_PATH];
    memcpy(path, record->path, record->path_size);
    path[record->path_size] = 0;
    if (path[0] == '/' || strlen(path) != record->path_size)
        return 0;
    int folder = openat(root, record->path_size ? path : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0)
        return 0;
    struct stat status;
    int is_same = !fstat(folder, &status)
        && (uint64_t)status.st_dev == (uint64_t)read_i64(head + DEVICE)
        && (uint64_t)status.st_ino == (uint64_t)read_i64(head + INODE)
        && (uint32_t)status.st_mode == read_u32(head + MODE)
        && has_times(&status, read_i64(head + MTIME), read_i64(head + CTIME))
        && has_same_entries(folder, record);
    close(folder);
    return is_same;
}

static void *work(void *argument) {
    Job *job = argument;
    for (;;) {
        size_t at = atomic_fetch_add(&job->next, FOLDERS_AT_ONCE);
        if (at >= job->count)
            return NULL;
        size_t end = at + FOLDERS_AT_ONCE < job->count ? at + FOLDERS_AT_ONCE : job->count;
        for (; at < end; at++)
            job->verdicts[at] = (unsigned char)is_unchanged(job->root, &job->records[at]);
    }
}

static void run(Job *job, int threads) {
    pthread_t started[MOST_THREADS];
    int count = 0;
    while (count < threads - 1 && !pthread_create(&started[count], NULL, work, job))
        count++;
    work(job); /* this thread works too, alone where no other could be started */
    while (count)
        pthread_join(started[--count], NULL);
}

static size_t count_names(const unsigned char *names, size_t size) {
    const unsigned char *end = names + size, *at = names;
    size_t count = size ? 1 : 0;
    while (at < end && (at = memchr(at, 0, (size_t)(end - at)))) {
        count++;
        at++;
    }
    return count;
}

/* Find the records in the bytes of a cache. Return how many; -1 if they do not fit together, -2 without memory. */
static Py_ssize_t find_records(const unsigned char *data, size_t size, Record **found, size_t *entries) {
    size_t count = 0, room = 0;
    Record *records = NULL;
    *entries = 0;
    while (size) {
        if (size < HEAD_SIZE)
            goto damaged;
        Record record = {
            .head = data, .path = data + HEAD_SIZE, .path_size = read_u32(data + PATH_SIZE),
            .names_size = read_u32(data + NAMES_SIZE), .entries = read_u32(data + ENTRIES),
        };
        /* 32-bit numbers added up in 64 bits do not overflow */
        uint64_t names_at = (uint64_t)HEAD_SIZE + record.path_size + read_u32(data + FOLDERS_SIZE)
            + read_u32(data + DETAILS_SIZE);
        uint64_t rows_at = names_at + record.names_size;
        uint64_t end = rows_at + (uint64_t)record.entries * (ROW_BYTES + CONTENT_BYTES);
        if (end > size)
            goto damaged;
        record.names = data + names_at;
        record.rows = data + rows_at;
        if (count_names(record.names, record.names_size) != record.entries)
            goto damaged;
        if (count >= NO_PARENT)
            goto damaged;
        if (count == room) {
            room = room ? 2 * room : 1024;
            Record *more = room > SIZE_MAX / sizeof(Record) ? NULL : realloc(records, room * sizeof(Record));
            if (!more) {
                free(records);
                return -2;
            }
            records = more;
        }
        records[count++] = record;
        *entries += record.entries;
        data += end;
        size -= end;
    }
    *found = records;
    return (Py_ssize_t)count;
damaged:
    free(records);
    return -1;
}

static uint64_t hash_of(const unsigned char *text, size_t size) {
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (size_t at = 0; at < size; at++)
        hash = (hash ^ text[at]) * 1099511628211u;
    return hash ^ hash >> 32;
}

/* Numbers of records by path: open addressing, at most half full. */
typedef struct {
    const Record *records;
    uint32_t *numbers; /* plus one; 0: free */
    size_t mask;
} Index;

/* The place of a path in the index, or the free place where it belongs. */
static uint32_t *find(const Index *index, const unsigned char *path, size_t size) {
    for (size_t at = (size_t)hash_of(path, size) & index->mask;; at = (at + 1) & index->mask) {
        uint32_t *place = &index->numbers[at];
        if (!*place)
            return place;
        const Record *record = &index->records[*place - 1];
        if (record->path_size == size && !memcmp(record->path, path, size))
            return place;
    }
}

/* Find the records of the folders in one; return whether there is one for each. */
static int claim_children(const Index *index, uint32_t number, Relation *relations) {
    const Record *record = &index->records[number];
    const unsigned char *name = record->path + record->path_size, *end = name + read_u32(record->head + FOLDERS_SIZE);
    unsigned char path[LONGEST_PATH];
    size_t prefix = record->path_size;
    if (name == end)
        return 1;
    if (prefix + 1 >= LONGEST_PATH)
        return 0;
    memcpy(path, record->path, prefix);
    if (prefix)
        path[prefix++] = '/';
    for (;; name++) {
        const unsigned char *stop = memchr(name, 0, (size_t)(end - name));
        size_t size = (size_t)((stop ? stop : end) - name);
        if (!size || size >= LONGEST_PATH - prefix || memchr(name, '/', size))
            return 0;
        memcpy(path + prefix, name, size);
        uint32_t child = *find(index, path, prefix + size);
        if (!child || child - 1 <= number || relations[child - 1].parent != NO_PARENT)
            return 0;
        relations[child - 1].parent = number;
        if (!stop)
            return 1;
        name = stop;
    }
}

static int is_zero(const unsigned char *bytes, size_t size) {
    while (size && !*bytes)
        bytes++, size--;
    return !size;
}

/* Whether an unchanged folder has nothing that the walk would check, or that other folders have to do with: the rules
   that apply in it are those of the folder above, and nothing in it is ignored, left out or linked. */
static int is_plain(const Record *record, const Record *parent, uint64_t device) {
    const unsigned char *head = record->head;
    return !(head[MARKS] & (HAS_SOURCES | IS_LINKED))
        && !read_u32(head + DETAILS_SIZE)
        && !read_u32(head + IGNORED_COUNT) && !read_i64(head + IGNORED_BYTES)
        && (uint64_t)read_i64(head + DEVICE) == device
        && !memcmp(head + RULES, parent->head + RULES, RULES_BYTES)
        && !is_zero(head + TREE, OID_BYTES) && !is_zero(head + ATTRS, OID_BYTES);
}

/* Find what is below what, and complete the verdicts. Return 0 if a path is there twice, -2 without memory. */
static int relate(const Job *job, const unsigned char *data, Relation *relations) {
    struct stat status;
    size_t count = job->count, room = 16;
    while (room < 2 * count)
        room *= 2;
    Index index = {.records = job->records, .numbers = calloc(room, sizeof(uint32_t)), .mask = room - 1};
    if (!index.numbers)
        return -2;
    for (size_t at = 0; at < count; at++) {
        const Record *record = &job->records[at];
        uint32_t *place = find(&index, record->path, record->path_size);
        if (*place) {
            free(index.numbers);
            return 0;
        }
        *place = (uint32_t)at + 1;
        relations[at] = (Relation){.start = (uint64_t)(record->head - data), .parent = NO_PARENT};
    }
    int has_device = !fstat(job->root, &status);
    for (size_t at = 0; at < count; at++)
        if (claim_children(&index, (uint32_t)at, relations))
            job->verdicts[at] |= PLAIN_BELOW; /* until a child says otherwise */
    for (size_t at = count; at-- > 0;) { /* children come after their parents */
        uint32_t parent = relations[at].parent;
        if (parent == NO_PARENT)
            continue;
        if (has_device && job->verdicts[at] & UNCHANGED
            && is_plain(&job->records[at], &job->records[parent], (uint64_t)status.st_dev))
            job->verdicts[at] |= PLAIN;
        if ((job->verdicts[at] & (PLAIN | PLAIN_BELOW)) != (PLAIN | PLAIN_BELOW))
            job->verdicts[parent] &= (unsigned char)~PLAIN_BELOW;
        relations[parent].below += relations[at].below + 1;
    }
    free(index.numbers);
    return 1;
}

PyDoc_STRVAR(sweep_doc,
    "sweep(data, start, root, threads)\n--\n\n"
    "Compare a scan cache with the disk. Return two byte strings, with a part for each folder:\n\n"
    "- a byte. 1: it and its known files are as the cache has them; 2: and nothing else in it has to be looked at, if\n"
    "  the rules of the folder above it apply; 4: so it is with all folders below it.\n"
    "- 16 bytes: where its record is, the number of the folder above it (or 2**32 - 1), how many are below it.\n\n"
    "data: the bytes of the cache; start: where its records begin; root: the descriptor of the workspace.\n"
    "ValueError if the records do not fit together.");

static PyObject *sweep(PyObject *module, PyObject *args) {
    Py_buffer view;
    Py_ssize_t start;
    int root, threads;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*nii:sweep", &view, &start, &root, &threads))
        return NULL;
    PyObject *verdicts = NULL, *result = NULL;
    Record *records = NULL;
    Relation *relations = NULL;
    size_t entries = 0;
    Py_ssize_t count = -1;
    if (start >= 0 && start <= view.len) {
        Py_BEGIN_ALLOW_THREADS
        count = find_records((const unsigned char *)view.buf + start, (size_t)(view.len - start), &records, &entries);
        Py_END_ALLOW_THREADS
    }
    if (count >= 0 && !(relations = calloc((size_t)count + 1, sizeof(Relation))))
        count = -2;
    if (count >= 0)
        verdicts = PyBytes_FromStringAndSize(NULL, count);
    if (verdicts) {
        Job job = {.records = records, .count = (size_t)count, .root = root};
        job.verdicts = (unsigned char *)PyBytes_AsString(verdicts);
        int is_whole;
        if (threads > MOST_THREADS)
            threads = MOST_THREADS;
        if (entries + (size_t)count < ENTRIES_FOR_THREADS)
            threads = 1;
        Py_BEGIN_ALLOW_THREADS
        run(&job, threads);
        is_whole = relate(&job, (const unsigned char *)view.buf, relations);
        Py_END_ALLOW_THREADS
        if (is_whole > 0)
            result = Py_BuildValue("Oy#", verdicts, (const char *)relations, count * RELATION_BYTES);
        else
            count = is_whole ? -2 : -1;
    }
    if (count == -2)
        PyErr_NoMemory();
    else if (count < 0)
        PyErr_SetString(PyExc_ValueError, "the scan cache is damaged");
    Py_XDECREF(verdicts);
    free(relations);
    free(records);
    PyBuffer_Release(&view);
    return result;
}

PyDoc_STRVAR(read_files_doc,
    "read_files(folder, names, places, rows, uid, gid, most_bytes)\n--\n\n"
    "Return for each place the content of that file of an open folder, if it is ordinary and as its row says.\n\n"
    "Otherwise None, or a descriptor: of what may be a database, for the caller to close with care.");

PyDoc_STRVAR(index_names_doc,
    "index_names(data, hash_bytes)\n--\n\n"
    "Return the names in a git index of version 2 or 3, a submodule's also with a slash, and where its entries end.\n\n"
    "ValueError for any other index.");

PyDoc_STRVAR(index_identity_doc,
    "index_identity(data, hash_bytes)\n--\n\n"
    "Return what is the same in two git indexes with the same entries, joined, and where the entries end.\n\n"
    "ValueError if it is not one of version 2 or 3.");

PyDoc_STRVAR(join_parts_doc,
    "join_parts(rows, refs, shape, size, open)\n--\n\n"
    "Return the bytes of a state of this size, or None if the Python code has to join it, or to say what is wrong.\n\n"
    "`rows`: a tuple of (name, refs, data) as stored, packs or single parts. `open` opens an envelope that is not plain.");

PyDoc_STRVAR(stamps_doc,
    "stamps(folder, names, settled_ns, most_bytes)\n--\n\n"
    "Return the stamps of files of an open folder, and a byte for each: 0: it has none (None), because it is no file,\n"
    "is larger, or cannot be looked at; 1: it changed at this time or later; 2: it did not.");

static PyMethodDef methods[] = {
    {"sweep", sweep, METH_VARARGS, sweep_doc},
    {"read_files", read_files, METH_VARARGS, read_files_doc},
    {"index_names", index_names, METH_VARARGS, index_names_doc},
    {"index_identity", index_identity, METH_VARARGS, index_identity_doc},
    {"join_parts", join_parts, METH_VARARGS, join_parts_doc},
    {"stamps", stamps, METH_VARARGS, stamps_doc},
    {NULL, NULL, 0, NULL},
};

/* Of the functions here; `native.py` has the same. A module that was built from other sources is not used. */
enum { INTERFACE = 5 };

static int fill(PyObject *module) { return PyModule_AddIntConstant(module, "INTERFACE", INTERFACE); }

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)fill}, {0, NULL}};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT, .m_name = "holdfast._native", .m_doc = "The native parts of scans and loads.",
    .m_size = 0, .m_methods = methods, .m_slots = slots,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
