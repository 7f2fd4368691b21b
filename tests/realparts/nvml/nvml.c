/* A GPU driver without a GPU: NVML's getters, answered from a file.
 *
 * Built as libnvidia-ml.so.1, so that the real bindings load it. The folder in $FAKE_NVML holds "state", which is looked
 * at in every call, and "calls", to which every call adds a line. ../nvml.py writes the one and reads the other, and says
 * what the keys mean. A line of the state is KEY SPACE VALUE; keys of a GPU begin with "gpuN.", those of a MIG device in
 * it with "gpuN.migM.", N being the GPU for ever, whatever index it has now. What has no line is not supported.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND = 6, INSUFFICIENT_SIZE };
enum { LIBRARY_NOT_FOUND = 12, LOST = 15 };
enum { GPUS = 16, MIGS = 7, STARTS = 8, VALUE = 4096 };

typedef unsigned int uint;
typedef unsigned long long u64;
typedef long long i64;
typedef struct { int start, gpu, mig; } Device; /* mig -1: the GPU itself */

static Device devices[STARTS][GPUS][MIGS + 1];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int users, start;
static char started_for[VALUE], started_generation[64];
static double started_at;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static const char *folder(void) {
    const char *named = getenv("FAKE_NVML");
    return named ? named : "";
}

static char *state; /* the text of the file, after a newline; under the lock */

/* Reads the state where the file is another than before; its writer gives every one a time of its own. */
static void refresh(void) {
    static struct stat was;
    char path[VALUE];
    struct stat is;
    snprintf(path, sizeof path, "%s/state", folder());
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    pthread_mutex_lock(&lock);
    if (fstat(file, &is) == 0 &&
        (!state || is.st_ino != was.st_ino || is.st_dev != was.st_dev || is.st_size != was.st_size ||
         is.st_mtim.tv_sec != was.st_mtim.tv_sec || is.st_mtim.tv_nsec != was.st_mtim.tv_nsec)) {
        free(state);
        state = calloc(1, is.st_size + 2);
        state[0] = '\n';
        for (ssize_t n, done = 0; (n = read(file, state + 1 + done, is.st_size - done)) > 0;) done += n;
        was = is;
    }
    pthread_mutex_unlock(&lock);
    close(file);
}

/* The value of a key, in a buffer of VALUE bytes. */
static int look(char *value, const char *format, ...) {
    char line[256] = "\n";
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + 1, sizeof line - 2, format, arguments);
    va_end(arguments);
    strcat(line, " ");
    pthread_mutex_lock(&lock);
    const char *found = state ? strstr(state, line) : NULL;
    if (found) {
        found += strlen(line);
        size_t n = strcspn(found, "\n");
        if (n >= VALUE) n = VALUE - 1;
        memcpy(value, found, n);
        value[n] = 0;
    }
    pthread_mutex_unlock(&lock);
    return found != NULL;
}

static const char *scope(const Device *device, char *name) {
    if (!device) return strcpy(name, "driver");
    if (device->mig < 0) sprintf(name, "gpu%d", device->gpu);
    else sprintf(name, "gpu%d.mig%d", device->gpu, device->mig);
    return name;
}

static void count_call(const char *function, const char *of) {
    char path[VALUE], line[256];
    snprintf(path, sizeof path, "%s/calls", folder());
    int file = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (file < 0) return;
    int n = snprintf(line, sizeof line, "%s %s\n", function, of);
    if (write(file, line, n) != n) abort();
    close(file);
}

/* Waits as long as the state says so: that many seconds, or, below 0, until it no longer does. */
static void hang(const char *of, const char *function) {
    char value[VALUE];
    double since = now();
    while (look(value, "%s.hang.%s", of, function) || look(value, "%s.hang", of)) {
        double seconds = atof(value);
        if ((seconds >= 0 && now() - since >= seconds) || !*folder()) return; /* the test is over */
        usleep(2000);
        refresh();
    }
}

static int told_error(const char *of, const char *function) {
    char value[VALUE];
    if (look(value, "%s.error.%s", of, function) || look(value, "%s.error", of)) return atoi(value);
    return SUCCESS;
}

static int index_of(int gpu) {
    char order[VALUE], *rest = order;
    if (!look(order, "order")) return -1;
    for (int index = 0;; index++) {
        char *end;
        long found = strtol(rest, &end, 10);
        if (end == rest) return -1;
        if (found == gpu) return index;
        rest = end;
    }
}

/* What every call does first; what it gives, if not SUCCESS, is the answer. device NULL: a question to the driver. */
static int enter(const char *function, const Device *device) {
    char of[64], gpu[64], value[VALUE];
    int code;
    if (!*folder()) return LIBRARY_NOT_FOUND;
    refresh();
    scope(device, of);
    count_call(function, of);
    hang("driver", function);
    if (device) {
        sprintf(gpu, "gpu%d", device->gpu);
        hang(gpu, function);
    }
    if ((code = told_error("driver", function))) return code;
    if (!look(value, "generation")) value[0] = 0;
    pthread_mutex_lock(&lock);
    int is_started = users > 0 && !strcmp(started_for, folder()) && !strcmp(started_generation, value);
    pthread_mutex_unlock(&lock);
    if (!is_started) return UNINITIALIZED;
    if (!device) return SUCCESS;
    if (device->start != start) return INVALID_ARGUMENT;
    if (index_of(device->gpu) < 0) return LOST;
    if (look(value, "%s.restored_at", gpu) && started_at < atof(value)) return LOST;
    if ((code = told_error(gpu, function))) return code;
    if (device->mig >= 0) {
        if (!look(value, "%s.uuid", of)) return INVALID_ARGUMENT;
        return told_error(of, function);
    }
    return SUCCESS;
}

#define ENTER(device)                     \
    int entered = enter(__func__, device); \
    if (entered) return entered

static int start_library(const char *function) {
    char generation[VALUE];
    int code;
    if (!*folder()) return LIBRARY_NOT_FOUND;
    refresh();
    count_call(function, "driver");
    hang("driver", function);
    if ((code = told_error("driver", function))) return code;
    if (!look(generation, "generation")) generation[0] = 0;
    pthread_mutex_lock(&lock);
    if (users == 0 || strcmp(started_for, folder())) {
        users = 0;
        start = (start + 1) % STARTS;
        for (int gpu = 0; gpu < GPUS; gpu++)
            for (int mig = -1; mig < MIGS; mig++) devices[start][gpu][mig + 1] = (Device){start, gpu, mig};
        snprintf(started_for, sizeof started_for, "%s", folder());
        snprintf(started_generation, sizeof started_generation, "%.63s", generation);
        started_at = now();
    }
    users++;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

int nvmlInit_v2(void) { return start_library(__func__); }
int nvmlInitWithFlags(uint flags) { return (void)flags, start_library(__func__); }

int nvmlShutdown(void) {
    refresh();
    count_call(__func__, "driver");
    hang("driver", __func__);
    pthread_mutex_lock(&lock);
    int code = users > 0 ? SUCCESS : UNINITIALIZED;
    if (users > 0) users--;
    pthread_mutex_unlock(&lock);
    return code;
}

const char *nvmlErrorString(int code) { return code ? "an error of the fake driver" : "no error"; }

static int text(const Device *device, const char *key, char *into, uint size) {
    char of[64], value[VALUE];
    if (!look(value, "%s.%s", scope(device, of), key)) return NOT_SUPPORTED;
    if (strlen(value) >= size) return INSUFFICIENT_SIZE;
    strcpy(into, value);
    return SUCCESS;
}

static int number(const Device *device, const char *key, i64 *into) {
    char of[64], value[VALUE];
    if (!look(value, "%s.%s", scope(device, of), key)) return NOT_SUPPORTED;
    *into = atoll(value);
    return SUCCESS;
}

static int number32(const Device *device, const char *key, uint *into) {
    long long value;
    int code = number(device, key, &value);
    if (!code) *into = (uint)value;
    return code;
}

int nvmlSystemGetDriverVersion(char *version, uint size) { ENTER(NULL); return text(NULL, "version", version, size); }
int nvmlSystemGetNVMLVersion(char *version, uint size) { ENTER(NULL); return text(NULL, "nvml_version", version, size); }

int nvmlDeviceGetCount_v2(uint *count) {
    ENTER(NULL);
    *count = 0;
    for (int gpu = 0; gpu < GPUS; gpu++) *count += index_of(gpu) >= 0;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(uint index, Device **device) {
    ENTER(NULL);
    for (int gpu = 0; gpu < GPUS; gpu++)
        if (index_of(gpu) == (int)index) {
            int code = enter(__func__, &devices[start][gpu][0]);
            if (!code) *device = &devices[start][gpu][0];
            return code;
        }
    return INVALID_ARGUMENT;
}

int nvmlDeviceGetName(Device *device, char *name, uint size) { ENTER(device); return text(device, "name", name, size); }
int nvmlDeviceGetUUID(Device *device, char *uuid, uint size) { ENTER(device); return text(device, "uuid", uuid, size); }

typedef struct { char legacy[16]; uint domain, bus, device, id, subsystem; char bus_id[32]; } Pci;
int nvmlDeviceGetPciInfo_v3(Device *device, Pci *pci) {
    ENTER(device);
    memset(pci, 0, sizeof *pci);
    return text(device, "pci", pci->bus_id, sizeof pci->bus_id);
}

typedef struct { u64 total, free, used; } Memory;
typedef struct { uint version; u64 total, reserved, free, used; } MemoryV2;
static int memory(Device *device, MemoryV2 *into) {
    long long total, reserved = 0, used, includes = 0;
    int code = number(device, "memory_total", &total);
    if (!code) code = number(device, "memory_used", &used);
    if (code) return code;
    number(device, "memory_reserved", &reserved);
    number(NULL, "used_includes_reserved", &includes); /* as some drivers do */
    *into = (MemoryV2){into->version, total, reserved, total - reserved - used, used + (includes ? reserved : 0)};
    return SUCCESS;
}
int nvmlDeviceGetMemoryInfo_v2(Device *device, MemoryV2 *into) { ENTER(device); return memory(device, into); }
int nvmlDeviceGetMemoryInfo(Device *device, Memory *into) {
    ENTER(device);
    MemoryV2 now_used = {0};
    int code = memory(device, &now_used);
    if (!code) *into = (Memory){now_used.total, now_used.free, now_used.total - now_used.free};
    return code;
}

typedef struct { uint gpu, memory; } Utilization;
int nvmlDeviceGetUtilizationRates(Device *device, Utilization *into) {
    ENTER(device);
    into->memory = 0;
    return number32(device, "utilization", &into->gpu);
}

typedef struct { uint version, sensor; int value; } Temperature;
int nvmlDeviceGetTemperature(Device *device, uint sensor, uint *into) {
    ENTER(device);
    return sensor ? INVALID_ARGUMENT : number32(device, "temperature", into);
}
int nvmlDeviceGetTemperatureV(Device *device, Temperature *into) {
    ENTER(device);
    return into->sensor ? INVALID_ARGUMENT : number32(device, "temperature", (uint *)&into->value);
}
typedef struct { uint version; int value; } Margin;
int nvmlDeviceGetMarginTemperature(Device *device, Margin *into) {
    ENTER(device);
    return number32(device, "margin", (uint *)&into->value);
}
int nvmlDeviceGetTemperatureThreshold(Device *device, uint which, uint *into) {
    ENTER(device);
    return which > 1 ? NOT_SUPPORTED : number32(device, which ? "slowdown" : "shutdown", into);
}

#define GETTER(function, key) \
    int function(Device *device, uint *into) { ENTER(device); return number32(device, key, into); }
GETTER(nvmlDeviceGetPowerUsage, "power")
GETTER(nvmlDeviceGetPowerManagementLimit, "requested_limit")
GETTER(nvmlDeviceGetEnforcedPowerLimit, "enforced_limit")
GETTER(nvmlDeviceGetPowerManagementDefaultLimit, "default_limit")
int nvmlDeviceGetPowerManagementLimitConstraints(Device *device, uint *least, uint *most) {
    ENTER(device);
    int code = number32(device, "least_limit", least);
    return code ? code : number32(device, "most_limit", most);
}

#define THROTTLING(function) \
    int function(Device *device, u64 *into) { ENTER(device); return number(device, "throttling", (i64 *)into); }
THROTTLING(nvmlDeviceGetCurrentClocksEventReasons)
THROTTLING(nvmlDeviceGetCurrentClocksThrottleReasons)

typedef struct {
    uint id, scope;
    long long timestamp, latency;
    uint type, code;
    union { double d; uint ui; u64 ull; long long sll; } value;
} Field;
int nvmlDeviceGetFieldValues(Device *device, int n_fields, Field *fields) {
    ENTER(device);
    for (int i = 0; i < n_fields; i++) {
        char of[64], value[VALUE];
        long long found = 0;
        snprintf(value, sizeof value, "field.%u", fields[i].id);
        fields[i].code = told_error(scope(device, of), value);
        if (fields[i].code) continue;
        fields[i].code = number(device, value, &found);
        fields[i].type = fields[i].id == 3 || fields[i].id == 4 ? 3 : 1; /* ECC counts have 64 bits */
        if (fields[i].type == 3) fields[i].value.ull = found;
        else fields[i].value.ui = (uint)found;
    }
    return SUCCESS;
}

/* "PID:BYTES PID:BYTES …"; BYTES -1: not available */
typedef struct { uint pid; u64 used; uint gpu_instance, compute_instance; } Process;
static int processes(const Device *device, const char *key, uint *count, Process *into) {
    char of[64], value[VALUE];
    uint n = 0, room = *count;
    if (!look(value, "%s.%s", scope(device, of), key)) return NOT_SUPPORTED;
    for (char *rest = value, *end; *rest; rest = end, n++) {
        uint pid = strtoul(rest, &end, 10);
        if (end == rest) break;
        long long used = strtoll(end + 1, &end, 10);
        if (n < room) into[n] = (Process){pid, used, ~0u, ~0u};
    }
    *count = n;
    return n > room ? INSUFFICIENT_SIZE : SUCCESS;
}
#define PROCESSES(function, key) \
    int function(Device *device, uint *n, Process *into) { ENTER(device); return processes(device, key, n, into); }
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, "compute")
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, "compute")
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, "graphics")
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, "graphics")
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, "shared")

int nvmlDeviceGetMigMode(Device *device, uint *current, uint *pending) {
    ENTER(device);
    int code = number32(device, "mig_mode", current);
    if (!code) *pending = *current;
    return code;
}
int nvmlDeviceGetMaxMigDeviceCount(Device *device, uint *count) { ENTER(device); *count = MIGS; return SUCCESS; }
int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, uint slot, Device **mig) {
    char value[VALUE];
    ENTER(device);
    if (slot >= MIGS) return INVALID_ARGUMENT;
    if (!look(value, "gpu%d.mig%u.uuid", device->gpu, slot)) return NOT_FOUND;
    *mig = &devices[start][device->gpu][slot + 1];
    return SUCCESS;
}
GETTER(nvmlDeviceGetGpuInstanceId, "gpu_instance")

typedef struct {
    uint processors, copy, decoder, encoder, jpeg, ofa, gpu_slices, compute_slices;
    u64 memory_mib;
} Attributes;
int nvmlDeviceGetAttributes_v2(Device *device, Attributes *into) {
    long long mib;
    ENTER(device);
    memset(into, 0, sizeof *into);
    int code = number32(device, "slices", &into->gpu_slices);
    if (!code) code = number(device, "memory_mib", &mib);
    if (!code) into->memory_mib = mib;
    return code;
}
