// Marks the lines of Python that run, in a file that every process maps.
//
// Nothing has to be written when a process ends: what ran before a SIGKILL or an _exit is counted, and a fork goes on
// marking. coverage.py writes at exit, and services of a pool have none. A line costs a byte, which only ever becomes 1,
// so that processes need no lock.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#if PY_VERSION_HEX < 0x030C0000
#define PyUnstable_Code_GetExtra _PyCode_GetExtra
#define PyUnstable_Code_SetExtra _PyCode_SetExtra
#define PyUnstable_Eval_RequestCodeExtraIndex _PyEval_RequestCodeExtraIndex
#endif

typedef struct {
    char *first;  // the byte of line 0, which no code has
    int count;
} File;

static File *files;
static File elsewhere;  // a file that nobody counts
static PyObject *numbers;  // names of files, as code objects have them, to their place in `files`
static Py_ssize_t extra;
static PyObject *tracer;

static File *file_of(PyCodeObject *code) {
    PyObject *number = PyDict_GetItem(numbers, code->co_filename);
    File *file = number == NULL ? &elsewhere : &files[PyLong_AsLong(number)];
    PyUnstable_Code_SetExtra((PyObject *)code, extra, file);
    return file;
}

static int on_event(PyObject *Py_UNUSED(self), PyFrameObject *frame, int what, PyObject *Py_UNUSED(argument)) {
    if (what != PyTrace_LINE)
        return 0;
    PyCodeObject *code = PyFrame_GetCode(frame);
    void *known = NULL;
    PyUnstable_Code_GetExtra((PyObject *)code, extra, &known);
    File *file = known == NULL ? file_of(code) : known;
    if (file != &elsewhere) {
        int line = PyFrame_GetLineNumber(frame);
        if (line > 0 && line < file->count)
            file->first[line] = 1;
    }
    Py_DECREF(code);
    return 0;
}

// Begin in this thread. It is what sys.gettrace() returns: who puts that back calls it at the next event.
static PyObject *trace(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(arguments)) {
    PyEval_SetTrace(on_event, tracer);
    return Py_NewRef(tracer);
}

// start(path, counts, numbers): map the file of marks, and begin in this thread.
static PyObject *start(PyObject *module, PyObject *arguments) {
    const char *path;
    PyObject *counts;
    if (!PyArg_ParseTuple(arguments, "sO!O!", &path, &PyList_Type, &counts, &PyDict_Type, &numbers))
        return NULL;
    Py_INCREF(numbers);
    int descriptor = open(path, O_RDWR | O_CLOEXEC);
    if (descriptor < 0)
        return PyErr_SetFromErrnoWithFilename(PyExc_OSError, path);
    off_t bytes = lseek(descriptor, 0, SEEK_END);
    char *marks = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (marks == MAP_FAILED)
        return PyErr_SetFromErrnoWithFilename(PyExc_OSError, path);
    Py_ssize_t known = PyList_GET_SIZE(counts);
    files = PyMem_RawCalloc((size_t)known + 1, sizeof(File));
    if (files == NULL)
        return PyErr_NoMemory();
    char *end = marks + bytes;
    for (Py_ssize_t each = 0; each < known; each++) {
        int count = (int)PyLong_AsLong(PyList_GET_ITEM(counts, each));
        if (count < 0 || count > end - marks)
            return PyErr_Format(PyExc_ValueError, "%s has %zd bytes, and the files more lines", path, (Py_ssize_t)bytes);
        files[each] = (File){marks, count};
        marks += count;
    }
    extra = PyUnstable_Eval_RequestCodeExtraIndex(NULL);
    tracer = PyObject_GetAttrString(module, "trace");
    return tracer == NULL ? NULL : trace(module, NULL);
}

static PyMethodDef methods[] = {
    {"start", start, METH_VARARGS, "Map the file of marks, and begin in this thread."},
    {"trace", trace, METH_VARARGS, "Begin in this thread."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "forebay_lines", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_forebay_lines(void) {
    return PyModule_Create(&module);
}
