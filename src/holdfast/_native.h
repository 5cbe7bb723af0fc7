/* What the parts of the native module share. */

#include <Python.h>

PyObject *read_files(PyObject *module, PyObject *args); /* _native_read.c */
PyObject *index_names(PyObject *module, PyObject *args); /* _native_index.c */
PyObject *index_identity(PyObject *module, PyObject *args); /* _native_index.c */
PyObject *join_parts(PyObject *module, PyObject *args); /* _native_parts.c */
PyObject *stamps(PyObject *module, PyObject *args); /* _native_stamp.c */
