/* A libnvidia-ml.so.1 whose answers are in a text file, which is read at every call.
 *
 * Lines of the file named by $FAKE_NVML are "WHO KEY VALUE": WHO is "system", a GPU's number,
 * a MIG instance as "GPU.SLOT", or "*" for every GPU; a VALUE "!15" is that NVML error.
 * Values that the file lacks are NOT_SUPPORTED.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, NO_DRIVER = 9 };
enum { GPUS = 64, SLOTS = 8, LINE = 512 };

typedef void *device;
typedef struct { unsigned long long total, free, used; } memory_v1;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2;
typedef struct { unsigned gpu, memory; } utilization;
typedef struct { unsigned version, sensor; int temperature; } temperature_v1;
typedef struct { unsigned pid; unsigned long long bytes; unsigned gi, ci; } process;

/* Handles are numbers: GPU n is n+1, its MIG instance s is (s+1)*GPUS + n+1. */
static device handle_of(int gpu, int slot) {
    return (device)(intptr_t)((slot + 1) * GPUS + gpu + 1);
}

static void name_of(device handle, char *who) {
    int number = (int)(intptr_t)handle - 1, gpu = number % GPUS, slot = number / GPUS - 1;
    if (slot < 0)
        sprintf(who, "%d", gpu);
    else
        sprintf(who, "%d.%d", gpu, slot);
}

static int look_up(const char *who, const char *key, char *value) {
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[LINE], its_who[32], its_key[64];
    int whole = strchr(who, '.') == NULL && strcmp(who, "system") != 0;
    int result = NOT_SUPPORTED;
    if (!file)
        return NO_DRIVER;
    while (result == NOT_SUPPORTED && fgets(line, sizeof line, file)) {
        value[0] = 0;
        if (sscanf(line, "%31s %63s %511[^\n]", its_who, its_key, value) < 2)
            continue;
        if (strcmp(its_key, key) == 0 &&
            (strcmp(its_who, who) == 0 || (whole && strcmp(its_who, "*") == 0)))
            result = value[0] == '!' ? atoi(value + 1) : SUCCESS;
    }
    fclose(file);
    return result;
}

static int ask(device handle, const char *key, char *value) {
    char who[32];
    int lost;
    name_of(handle, who);
    lost = look_up(who, "lost", value);
    return lost == NOT_SUPPORTED ? look_up(who, key, value) : lost;
}

static int ask_number(device handle, const char *key, unsigned long long *number) {
    char value[LINE];
    int result = ask(handle, key, value);
    if (result == SUCCESS)
        *number = strtoull(value, NULL, 10);
    return result;
}

static int ask_unsigned(device handle, const char *key, unsigned *number) {
    unsigned long long wide;
    int result = ask_number(handle, key, &wide);
    if (result == SUCCESS)
        *number = (unsigned)wide;
    return result;
}

static int ask_text(device handle, const char *key, char *text, unsigned size) {
    char value[LINE];
    int result = ask(handle, key, value);
    if (result == SUCCESS)
        snprintf(text, size, "%s", value);
    return result;
}

static int system_number(const char *key, int *number) {
    char value[LINE];
    int result = look_up("system", key, value);
    if (result == SUCCESS)
        *number = atoi(value);
    return result;
}

int nvmlInitWithFlags(unsigned flags) {
    char value[LINE];
    int result = look_up("system", "init", value);
    (void)flags;
    return result == NOT_SUPPORTED ? SUCCESS : result;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int error) {
    static char text[32];
    sprintf(text, "fake error %d", error);
    return text;
}

int nvmlSystemGetDriverVersion(char *text, unsigned size) {
    char value[LINE];
    int result = look_up("system", "driver", value);
    if (result == SUCCESS)
        snprintf(text, size, "%s", value);
    return result;
}
int nvmlSystemGetCudaDriverVersion_v2(int *version) { return system_number("cuda", version); }

int nvmlDeviceGetCount_v2(unsigned *count) {
    int number = 0, result = system_number("count", &number);
    *count = (unsigned)number;
    return result;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device *handle) {
    char value[LINE], who[32];
    int lost, count = 0;
    system_number("count", &count);
    if (index >= (unsigned)count)
        return INVALID;
    *handle = handle_of((int)index, -1);
    name_of(*handle, who);
    lost = look_up(who, "lost", value);
    return lost == NOT_SUPPORTED ? SUCCESS : lost;
}

int nvmlDeviceGetMigDeviceHandleByIndex(device gpu, unsigned slot, device *handle) {
    char who[32], value[LINE];
    *handle = handle_of((int)(intptr_t)gpu - 1, (int)slot);
    name_of(*handle, who);
    return look_up(who, "uuid", value) == SUCCESS ? SUCCESS : NOT_FOUND;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, device *handle) {
    int gpu, slot, count = 0;
    char who[32], value[LINE];
    system_number("count", &count);
    for (gpu = 0; gpu < count; gpu++)
        for (slot = -1; slot < SLOTS; slot++) {
            *handle = handle_of(gpu, slot);
            name_of(*handle, who);
            if (look_up(who, "uuid", value) == SUCCESS && strcmp(value, uuid) == 0)
                return SUCCESS;
        }
    return NOT_FOUND;
}

int nvmlDeviceGetUUID(device gpu, char *text, unsigned size) {
    return ask_text(gpu, "uuid", text, size);
}
int nvmlDeviceGetName(device gpu, char *text, unsigned size) {
    return ask_text(gpu, "name", text, size);
}

int nvmlDeviceGetMigMode(device gpu, unsigned *now, unsigned *pending) {
    int result = ask_unsigned(gpu, "mig", now);
    *pending = *now;
    return result;
}
int nvmlDeviceGetMaxMigDeviceCount(device gpu, unsigned *count) {
    (void)gpu;
    *count = SLOTS;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(device gpu, memory_v1 *memory) {
    int result = ask_number(gpu, "memory_total", &memory->total);
    return result == SUCCESS ? ask_number(gpu, "memory_used_v1", &memory->used) : result;
}
int nvmlDeviceGetMemoryInfo_v2(device gpu, memory_v2 *memory) {
    int result = ask_number(gpu, "memory_total", &memory->total);
    return result == SUCCESS ? ask_number(gpu, "memory_used", &memory->used) : result;
}

int nvmlDeviceGetUtilizationRates(device gpu, utilization *rates) {
    rates->memory = 0;
    return ask_unsigned(gpu, "utilisation", &rates->gpu);
}
int nvmlDeviceGetPowerUsage(device gpu, unsigned *milliwatts) {
    return ask_unsigned(gpu, "power", milliwatts);
}
int nvmlDeviceGetTemperature(device gpu, int sensor, unsigned *degrees) {
    (void)sensor;
    return ask_unsigned(gpu, "temperature", degrees);
}
int nvmlDeviceGetTemperatureV(device gpu, temperature_v1 *reading) {
    return ask_unsigned(gpu, "temperature_v1", (unsigned *)&reading->temperature);
}
int nvmlDeviceGetClockInfo(device gpu, int clock, unsigned *megahertz) {
    return ask_unsigned(gpu, clock == 1 ? "sm_clock" : "memory_clock", megahertz);
}
int nvmlDeviceGetTotalEnergyConsumption(device gpu, unsigned long long *millijoules) {
    return ask_number(gpu, "energy", millijoules);
}

/* "processes 4711:1048576 4712:-1", where -1 is "not available". */
int nvmlDeviceGetComputeRunningProcesses_v3(device gpu, unsigned *count, process *found) {
    char value[LINE], *word;
    unsigned room = *count;
    int result = ask(gpu, "processes", value);
    if (result != SUCCESS)
        return result;
    *count = 0;
    for (word = strtok(value, " "); word; word = strtok(NULL, " ")) {
        if (*count < room && found) {
            char *colon = strchr(word, ':');
            found[*count].pid = (unsigned)atoi(word);
            found[*count].bytes = (unsigned long long)atoll(colon + 1);
        }
        ++*count;
    }
    return *count > room ? TOO_SMALL : SUCCESS;
}
