/* One run of what is queued on a rank's streams, in seconds: what plain() of play.py does, number by number
 * (tests/unit/memory/test_compiled_streams.py). Where this was not built, plain() runs.
 *
 * Nothing is multiplied here: a compiler may not make one rounding of a product and a sum.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define STREAMS 5 /* log.py: STREAMS */
enum { LAUNCHED, RECORDED, WAITED, FREED, SENT, HOST_WAITED, KINDS };
static const int64_t widths[KINDS] = {1, 3, 4, 3, 2, 2 + STREAMS};

enum { ENTRIES, KERNELS, ISSUE, RUN, HOOKS, TIMES, DONE, AFTER, REACHED, ARRAYS };

typedef struct {
    const void *data[ARRAYS];
    int64_t length[ARRAYS];
    int64_t works, most_queued;
    int limited;
} Given;

static double later(double one, double other) { return one > other ? one : other; }

static int outside(int64_t number, int64_t end) { return number < 0 || number >= end; }

/* Whether an entry names a work or a stream that is not there. */
static int wrong(const int64_t *entry, const Given *given) {
    int64_t works = given->works + 1;
    switch (entry[0]) {
    case RECORDED:
    case FREED: return outside(entry[1], works) || outside(entry[2], STREAMS);
    case WAITED: return outside(entry[1], works) || outside(entry[2], STREAMS) || outside(entry[3], STREAMS);
    case SENT: return outside(entry[1], STREAMS);
    case HOST_WAITED:
        for (int at = 0; at < STREAMS; at++)
            if (outside(entry[2 + at], works)) return 1;
        return 0;
    default: return 0;
    }
}

/* 0 done, 1 out of memory, 2 a log that does not hold together. */
static int played(const Given *given) {
    const int64_t *entries = given->data[ENTRIES], *kernels = given->data[KERNELS];
    const double *issue = given->data[ISSUE], *run = given->data[RUN];
    const double *hooks = given->data[HOOKS], *times = given->data[TIMES];
    double *done = (double *)given->data[DONE], *reached = (double *)given->data[REACHED];
    int64_t *after = (int64_t *)given->data[AFTER];
    int64_t launches = given->length[KERNELS], sends = given->length[TIMES];
    double host = 0, streams[STREAMS] = {0};
    /* What is queued: kernels so far, and when they are done; from `first` up to `last`, which is always there. */
    double *works = calloc((size_t)given->works + 1, sizeof(double));
    int64_t *queued = malloc(((size_t)launches + 1) * sizeof(int64_t));
    double *over = malloc(((size_t)launches + 1) * sizeof(double));
    int answer = works == NULL || queued == NULL || over == NULL;
    int64_t first = 0, last = 0, launch = 0, send = 0, free_ = 0, moment = 0;
    if (!answer) {
        queued[0] = 0;
        over[0] = 0;
    }
    for (int64_t at = 0; !answer && at < given->length[ENTRIES];) {
        const int64_t *entry = entries + at;
        answer = 2;
        if (outside(entry[0], KINDS) || at + widths[entry[0]] > given->length[ENTRIES] || wrong(entry, given)) break;
        at += widths[entry[0]];
        switch (entry[0]) {
        case LAUNCHED:
            if (launch == launches || moment == given->length[REACHED]) goto end;
            if (kernels[launch] > queued[last]) {
                host += issue[launch];
                if (run[launch] != 0) streams[0] = later(streams[0] + run[launch], host);
                last++;
            }
            queued[last] = kernels[launch];
            over[last] = streams[0];
            while (first < last && queued[first] <= kernels[launch] - given->most_queued) host = later(host, over[first++]);
            launch++;
            reached[moment++] = host;
            break;
        case WAITED:
            works[entry[1]] = later(streams[entry[3]], host);
            streams[entry[2]] = later(streams[entry[2]], works[entry[1]]);
            break;
        case SENT:
            if (send == sends) goto end;
            host += hooks[send];
            streams[entry[1]] = later(streams[entry[1]], host) + times[send];
            send++;
            break;
        case HOST_WAITED:
            if (moment == given->length[REACHED]) goto end;
            for (int stream = 0; (entry[1] || given->limited) && stream < STREAMS; stream++)
                host = later(host, works[entry[2 + stream]]);
            reached[moment++] = host;
            break;
        default:
            works[entry[1]] = later(streams[entry[2]], host);
            if (entry[0] == FREED) {
                if (free_ == given->length[DONE]) goto end;
                done[free_] = works[entry[1]];
                after[free_++] = moment;
            }
        }
        answer = 0;
    }
    if (!answer && (free_ != given->length[DONE] || moment != given->length[REACHED])) answer = 2;
end:
    free(works);
    free(queued);
    free(over);
    return answer;
}

static PyObject *play(PyObject *self, PyObject *args) {
    PyObject *objects[ARRAYS];
    long long works, most_queued;
    Given given;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOOOOOOOLLp", &objects[0], &objects[1], &objects[2], &objects[3], &objects[4],
                          &objects[5], &objects[6], &objects[7], &objects[8], &works, &most_queued, &given.limited))
        return NULL;
    given.works = works;
    given.most_queued = most_queued;
    Py_buffer views[ARRAYS];
    int open = 0, answer = 2;
    for (; open < ARRAYS; open++) {
        if (PyObject_GetBuffer(objects[open], &views[open], open < DONE ? PyBUF_SIMPLE : PyBUF_WRITABLE) < 0) break;
        given.data[open] = views[open].buf;
        given.length[open] = views[open].len / 8; /* int64 and double */
    }
    if (open == ARRAYS) {
        const int64_t *length = given.length;
        int match = length[ISSUE] == length[KERNELS] && length[RUN] == length[KERNELS] &&
                    length[HOOKS] == length[TIMES] && length[AFTER] == length[DONE] && works >= 0;
        Py_BEGIN_ALLOW_THREADS
        if (match) answer = played(&given);
        Py_END_ALLOW_THREADS
        if (answer == 1) PyErr_NoMemory();
        else if (answer) PyErr_SetString(PyExc_ValueError, "a log does not hold together");
    }
    for (int at = 0; at < open; at++) PyBuffer_Release(&views[at]);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"play", play, METH_VARARGS, "One run of a log, in seconds; see play.py."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_streams", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__streams(void) { return PyModuleDef_Init(&module); }
