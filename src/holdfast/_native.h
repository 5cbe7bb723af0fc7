/* What the parts of the native module share. */

#include <Python.h>

PyObject *read_files(PyObject *module, PyObject *args); /* _native_read.c */
PyObject *stamps(PyObject *module, PyObject *args); /* _native_stamp.c */
