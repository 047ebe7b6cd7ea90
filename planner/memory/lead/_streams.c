/* What is queued on a rank's streams: one run of it in seconds, and what the host knows to be done by code alone. Both do
 * what plain() of play.py and of until.py do, number by number (tests/unit/memory/test_compiled_streams.py). Where this
 * was not built, those run.
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
static const int64_t widths[KINDS] = {1, 3, 4, 3, 2, 4};
enum { AHEAD, LAGS, QUEUED, SCHEDULES }; /* schedules.py */

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
static int wrong(const int64_t *entry, int64_t works) {
    works++;
    switch (entry[0]) {
    case RECORDED:
    case FREED: return outside(entry[1], works) || outside(entry[2], STREAMS);
    case WAITED: return outside(entry[1], works) || outside(entry[2], STREAMS) || outside(entry[3], STREAMS);
    case SENT: return outside(entry[1], STREAMS);
    case HOST_WAITED: return outside(entry[2], works) || outside(entry[3], works);
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
        if (outside(entry[0], KINDS) || at + widths[entry[0]] > given->length[ENTRIES] || wrong(entry, given->works)) break;
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
            if ((entry[1] >> QUEUED & 1) || given->limited) host = later(host, works[entry[2]]);
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

typedef int32_t Clock[STREAMS]; /* last work of each stream that is complete */

typedef struct {
    int64_t kernels;
    int32_t work;
} Launch;

typedef struct {
    int64_t *until[SCHEDULES];
    Clock *freed;              /* of each free */
    int32_t *pending[STREAMS]; /* frees of each stream, in their order */
    int64_t num_pending[STREAMS], first[STREAMS][SCHEDULES];
    int64_t done[SCHEDULES]; /* last work of the computing stream */
    Clock lagging;           /* of every stream, where the others lag */
} Known;

static void latest(Clock one, const Clock other) {
    for (int stream = 0; stream < STREAMS; stream++)
        if (other[stream] > one[stream]) one[stream] = other[stream];
}

static int all_of(const Clock one, const Clock other) {
    for (int stream = 0; stream < STREAMS; stream++)
        if (one[stream] > other[stream]) return 0;
    return 1;
}

static void suppose(Known *known, const Clock event, int64_t moment, int64_t schedules) {
    for (int schedule = 0; schedule < SCHEDULES; schedule++) {
        if (!(schedules >> schedule & 1)) continue;
        if (event[0] > known->done[schedule]) known->done[schedule] = event[0];
        if (schedule == LAGS) latest(known->lagging, event);
        for (int stream = 0; stream < STREAMS; stream++) {
            int64_t *first = &known->first[stream][schedule];
            for (; *first < known->num_pending[stream]; ++*first) {
                int32_t number = known->pending[stream][*first];
                if (known->freed[number][0] > known->done[schedule]) break;
                if (schedule == LAGS && !all_of(known->freed[number], known->lagging)) break;
                known->until[schedule][number] = moment;
            }
        }
    }
}

/* 0 done, 2 a log that does not hold together; `clocks` has room for every work, `queued` for every launch. */
static int knows(const int64_t *entries, int64_t length, const int64_t *launches, int64_t num_launches, int64_t frees,
                 int64_t works, int64_t most_queued, Known *known, Clock *clocks, Launch *queued) {
    Clock streams[STREAMS] = {{0}};
    int64_t launch = 0, moment = -1, launched = -1, first = 0, last = 0, free_ = 0;
    for (int64_t at = 0; at < length;) {
        const int64_t *entry = entries + at;
        if (outside(entry[0], KINDS) || at + widths[entry[0]] > length || wrong(entry, works)) return 2;
        at += widths[entry[0]];
        switch (entry[0]) {
        case LAUNCHED:
            if (launch == num_launches) return 2;
            launched = launches[launch++];
            moment++;
            break;
        case WAITED:
            streams[entry[3]][entry[3]] = (int32_t)entry[1];
            latest(streams[entry[2]], streams[entry[3]]);
            break;
        case HOST_WAITED:
            moment++;
            if (entry[3]) {
                Clock both;
                memcpy(both, clocks[entry[2]], sizeof both);
                for (int stream = 0; stream < STREAMS; stream++)
                    if (stream == 0 || !both[stream]) both[stream] = clocks[entry[3]][stream];
                suppose(known, both, moment, 1 << AHEAD | 1 << LAGS);
            }
            suppose(known, clocks[entry[2]], moment, entry[1]);
            break;
        case SENT: break;
        default:
            streams[entry[2]][entry[2]] = (int32_t)entry[1];
            memcpy(clocks[entry[1]], streams[entry[2]], sizeof(Clock));
            if (entry[0] == FREED) {
                if (free_ == frees) return 2;
                memcpy(known->freed[free_], clocks[entry[1]], sizeof(Clock));
                known->pending[entry[2]][known->num_pending[entry[2]]++] = (int32_t)free_++;
            } else if (launched >= 0) { /* the event that stands behind what was launched */
                int32_t passed = 0;
                if (first < last && queued[last - 1].kernels == launched) queued[last - 1].work = (int32_t)entry[1];
                else {
                    while (first < last && queued[first].kernels <= launched - most_queued) passed = queued[first++].work;
                    queued[last++] = (Launch){launched, (int32_t)entry[1]};
                }
                if (passed) suppose(known, clocks[passed], moment, (1 << SCHEDULES) - 1);
                launched = -1;
            }
        }
    }
    return free_ == frees ? 0 : 2;
}

static PyObject *until(PyObject *self, PyObject *args) {
    PyObject *objects[3];
    long long works, most_queued;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOLL", &objects[0], &objects[1], &objects[2], &works, &most_queued)) return NULL;
    Py_buffer views[3];
    int open = 0, answer = 2;
    for (; open < 3; open++)
        if (PyObject_GetBuffer(objects[open], &views[open], open < 2 ? PyBUF_SIMPLE : PyBUF_WRITABLE) < 0) break;
    if (open == 3 && works >= 0 && works < INT32_MAX) {
        int64_t launches = views[1].len / 8, frees = views[2].len / 8 / SCHEDULES;
        Known known;
        memset(&known, 0, sizeof known);
        Clock *clocks = calloc((size_t)works + 1, sizeof(Clock));
        Launch *queued = malloc(((size_t)launches + 1) * sizeof(Launch));
        int32_t *pending = malloc(((size_t)frees * STREAMS + 1) * sizeof(int32_t));
        known.freed = malloc(((size_t)frees + 1) * sizeof(Clock));
        for (int stream = 0; stream < STREAMS && pending != NULL; stream++) known.pending[stream] = pending + frees * stream;
        for (int schedule = 0; schedule < SCHEDULES; schedule++) known.until[schedule] = (int64_t *)views[2].buf + frees * schedule;
        for (int64_t at = 0; at < frees * SCHEDULES; at++) ((int64_t *)views[2].buf)[at] = -1;
        answer = clocks == NULL || queued == NULL || pending == NULL || known.freed == NULL;
        Py_BEGIN_ALLOW_THREADS
        if (!answer)
            answer = knows(views[0].buf, views[0].len / 8, views[1].buf, launches, frees, works, most_queued, &known, clocks, queued);
        Py_END_ALLOW_THREADS
        free(clocks);
        free(queued);
        free(pending);
        free(known.freed);
    }
    if (open == 3 && answer == 1) PyErr_NoMemory();
    else if (open == 3 && answer) PyErr_SetString(PyExc_ValueError, "a log does not hold together");
    for (int at = 0; at < open; at++) PyBuffer_Release(&views[at]);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"play", play, METH_VARARGS, "One run of a log, in seconds; see play.py."},
    {"until", until, METH_VARARGS, "When the host knows each free of a log to be done; see until.py."},
    {NULL, NULL, 0, NULL},
};

/* What compiled.py gives and takes; another number than its own is a build of other source. */
static int told(PyObject *module) { return PyModule_AddIntConstant(module, "INTERFACE", 2); }

static PyModuleDef_Slot slots[] = {{Py_mod_exec, told}, {0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_streams", NULL, 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__streams(void) { return PyModuleDef_Init(&module); }
