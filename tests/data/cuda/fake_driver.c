/* A stand-in for NVIDIA's driver library, for tests on machines without a device.
 *
 * What is put on a stream runs only when something waits for it, as late as the API allows; memory is the host's. Kernels are those
 * in KERNELS. Every argument goes into a log; `fake_fail` and `fake_break` make calls fail. Where the CUDA toolkit's header is found
 * (CPATH names its folder), the compiler holds these definitions against it. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if __has_include(<cuda.h>)
#include <cuda.h>
#undef cuEventElapsedTime
CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end);
#else
typedef int CUresult, CUdevice;
typedef int CUdevice_attribute, CUfunction_attribute, CUjit_option;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct {
  CUfunction func;
  unsigned int gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  void **kernelParams, **extra;
  void *kern;
  CUcontext ctx;
} CUDA_KERNEL_NODE_PARAMS;
typedef uint32_t cuuint32_t;
typedef uint64_t cuuint64_t;
typedef struct { _Alignas(64) cuuint64_t opaque[16]; } CUtensorMap;
typedef int CUtensorMapDataType, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill;
#endif

enum { SUCCESS, INVALID_VALUE, NO_MEMORY, NOT_READY = 3, INVALID_PTX = 218, INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_FOUND = 500 };

/* -- what tests see and set ----------------------------------------------------------------------------------------- */

static char log_text[1 << 20];
static size_t log_size;
static struct { char name[64]; int code, after; } failure;
static int broken, breaks_at = -1, ran;
static int alive[8]; /* contexts, modules, device memory, pinned memory, streams, events, graphs, executable graphs */
enum { CONTEXTS, MODULES, MEMORY, PINNED, STREAMS, EVENTS, GRAPHS, EXECUTABLES };
int fake_version = 12040, fake_devices = 1, fake_capability = 90;

const char *fake_log(void) { return log_text; }
void fake_clear(void) { log_size = 0, log_text[0] = 0; }
const int *fake_alive(void) { return alive; }
/* The call of `name` after `after` more of them gives `code`. */
void fake_fail(const char *name, int code, int after) { strncpy(failure.name, name, 63), failure.code = code, failure.after = after; }
/* The kernel after `after` more of them fails, and every call from when that is known. */
void fake_break(int code, int after) { broken = -code, breaks_at = ran + after; }

static void note(const char *format, ...) {
  va_list args;
  va_start(args, format);
  int size = vsnprintf(log_text + log_size, sizeof log_text - log_size, format, args);
  va_end(args);
  log_size += size < (int)(sizeof log_text - log_size) ? size : 0;
}

static __thread int current; /* how often the context was pushed on this thread */

static CUresult enter(const char *name, int needs_context) {
  if (!strcmp(failure.name, name) && failure.after-- == 0) {
    failure.name[0] = 0;
    return (CUresult)failure.code;
  }
  if (broken > 0) return (CUresult)broken;
  return (CUresult)(needs_context && !current ? INVALID_CONTEXT : SUCCESS);
}
#define ENTER(needs_context) { CUresult bad = enter(__func__, needs_context); if (bad) return bad; }

/* -- the stream ----------------------------------------------------------------------------------------------------- */

struct CUmod_st { char ptx[1 << 12]; };
struct CUfunc_st { const char *name; int sizes[8]; int static_shared, dynamic_limit; };
struct CUevent_st { int at, time; };
typedef struct { enum { KERNEL, TO_DEVICE, TO_HOST, FILL, RECORD, GRAPH } kind; void *to, *from; size_t n; int value;
                 CUfunction kernel; unsigned size[7]; unsigned char args[512]; } Op;
typedef struct { Op ops[512]; int count; } Ops;
struct CUstream_st { Ops queue; int base, done; }; /* `base` operations came before the queue's first */
struct CUgraphNode_st { Op op; int after[32], waits; };
typedef struct { struct CUgraphNode_st nodes[64]; int count; } Nodes;
struct CUgraph_st { Nodes nodes; };
struct CUgraphExec_st { Nodes nodes; };

static struct CUfunc_st KERNELS[] = {
    {"axpy", {8, 8, 4, 4}, 0, 49152}, /* y[i] += a * x[i]: y, x, a (f32), n (u32) */
    {"every", {8, 4, 4, 8, 8, 4, 8, 0}, 1024, 48128},
    {"empty", {0}, 0, 49152},
    {"maps", {4, 128, 8, 128}, 0, 49152}, /* two tensor maps */
};

static void run_kernel(const Op *op) {
  if (broken < 0 && ran++ == breaks_at) { broken = -broken; return; }
  if (strcmp(op->kernel->name, "axpy")) return;
  float *y, *x, a;
  unsigned n;
  memcpy(&y, op->args, 8), memcpy(&x, op->args + 8, 8), memcpy(&a, op->args + 16, 4), memcpy(&n, op->args + 24, 4);
  for (unsigned i = 0; i < n; i++) y[i] += a * x[i];
}

/* Of the nodes that wait for nothing more, the last one runs first. */
static void run_graph(const Nodes *nodes) {
  char ended[64] = {0};
  for (int left = nodes->count; left && broken <= 0; left--) {
    int next = nodes->count - 1;
    for (; next >= 0; next--) {
      int ready = !ended[next];
      for (int i = 0; i < nodes->nodes[next].waits; i++) ready &= ended[nodes->nodes[next].after[i]];
      if (ready) break;
    }
    run_kernel(&nodes->nodes[next].op), ended[next] = 1;
  }
}

static void run(const Ops *ops, int from, int to) {
  for (int i = from; i < to && broken <= 0; i++) {
    const Op *op = &ops->ops[i];
    if (op->kind == KERNEL) run_kernel(op);
    else if (op->kind == FILL) memset(op->to, op->value, op->n);
    else if (op->kind == RECORD) ((CUevent)op->to)->time = ran;
    else if (op->kind == GRAPH) run_graph(op->from);
    else memcpy(op->to, op->from, op->n);
  }
}

static CUresult drain(CUstream stream, int to) {
  if (stream->done < to - stream->base) run(&stream->queue, stream->done, to - stream->base), stream->done = to - stream->base;
  if (stream->done == stream->queue.count) stream->base += stream->done, stream->done = stream->queue.count = 0;
  return (CUresult)(broken > 0 ? broken : SUCCESS);
}

static CUstream the_stream;

static CUresult put(CUstream stream, Op op) {
  if (!stream) return (CUresult)INVALID_HANDLE;
  Ops *ops = &stream->queue;
  if (ops->count == 512) return (CUresult)NO_MEMORY;
  ops->ops[ops->count++] = op;
  return (CUresult)SUCCESS;
}

/* The operation that a launch is; what is wrong with it, if anything is. */
static CUresult launched(Op *op, CUfunction function, const unsigned size[7], void **args, void **extra) {
  note("launch %s grid %u %u %u block %u %u %u shared %u%s", function->name, size[0], size[1], size[2], size[3], size[4], size[5], size[6],
       extra ? " extra" : "");
  if (size[3] * size[4] * size[5] > 1024 || (int)size[6] > function->dynamic_limit) return (CUresult)INVALID_VALUE;
  *op = (Op){KERNEL, .kernel = function};
  memcpy(op->size, size, sizeof op->size);
  for (int i = 0, at = 0; function->sizes[i]; at += (function->sizes[i++] + 7) / 8 * 8) {
    memcpy(op->args + at, args[i], function->sizes[i]);
    note(" ");
    for (int k = 0; k < function->sizes[i]; k++) note("%02x", op->args[at + k]);
    if ((uintptr_t)args[i] % (function->sizes[i] > 8 ? 64 : function->sizes[i])) note(" misaligned");
  }
  note("\n");
  return (CUresult)SUCCESS;
}

/* -- the API -------------------------------------------------------------------------------------------------------- */

CUresult cuInit(unsigned int flags) { ENTER(0) note("init %u\n", flags); return (CUresult)SUCCESS; }
CUresult cuDriverGetVersion(int *version) { *version = fake_version; return (CUresult)SUCCESS; }

CUresult cuGetErrorName(CUresult code, const char **text) {
  *text = code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : code == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : code == 1 ? "CUDA_ERROR_INVALID_VALUE"
        : code == 218 ? "CUDA_ERROR_INVALID_PTX" : code == 100 ? "CUDA_ERROR_NO_DEVICE" : NULL;
  return (CUresult)(*text ? SUCCESS : INVALID_VALUE);
}
CUresult cuGetErrorString(CUresult code, const char **text) {
  const char *name;
  *text = cuGetErrorName(code, &name) == 0 ? "what it means" : NULL;
  return (CUresult)(*text ? SUCCESS : INVALID_VALUE);
}

CUresult cuDeviceGetCount(int *count) { ENTER(0) *count = fake_devices; return (CUresult)SUCCESS; }
CUresult cuDeviceGet(CUdevice *device, int ordinal) { ENTER(0) *device = ordinal + 40; return (CUresult)SUCCESS; }
CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
  ENTER(0)
  snprintf(name, length, "Fake %d", device - 40);
  return (CUresult)SUCCESS;
}
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  ENTER(0)
  *bytes = device >= 40 ? (size_t)5 << 30 : 0;
  return (CUresult)SUCCESS;
}
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
  ENTER(0)
  if (device < 40) return (CUresult)INVALID_VALUE;
  *value = attribute == 75 ? fake_capability / 10 : attribute == 76 ? fake_capability % 10 : attribute == 97 ? 232448 : -1;
  return (CUresult)(*value < 0 ? INVALID_VALUE : SUCCESS);
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  ENTER(0)
  alive[CONTEXTS]++;
  *context = (CUcontext)(uintptr_t)(0x7000 + device);
  return (CUresult)SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) { alive[CONTEXTS]--; return (CUresult)(device < 40); }
CUresult cuCtxPushCurrent_v2(CUcontext context) {
  ENTER(0)
  if (context < (CUcontext)(uintptr_t)0x7028) return (CUresult)INVALID_CONTEXT;
  current++;
  return (CUresult)SUCCESS;
}
CUresult cuCtxPopCurrent_v2(CUcontext *context) {
  *context = NULL;
  if (current == 0) abort();
  current--;
  return (CUresult)SUCCESS;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, CUjit_option *options, void **values) {
  ENTER(1)
  const char *wrong = strstr(image, "wrong");
  for (unsigned i = 0; i < count; i++) {
    unsigned option = options[i], number = (unsigned)(uintptr_t)values[i];
    note("option %u %u\n", option, option == 3 || option == 5 ? 0 : number);
    if (option == 3 && i + 1 < count) snprintf(values[i], (unsigned)(uintptr_t)values[i + 1], "an info");
    if (option == 5 && i + 1 < count && wrong) {
      int line = 1;
      for (const char *c = image; c < wrong; c++) line += *c == '\n';
      snprintf(values[i], (unsigned)(uintptr_t)values[i + 1], "ptxas application ptx input, line %d; fatal   : Unexpected\nptxas fatal", line);
    }
  }
  if (wrong) return (CUresult)INVALID_PTX;
  *module = calloc(1, sizeof **module);
  strncpy((*module)->ptx, image, sizeof (*module)->ptx - 1);
  alive[MODULES]++;
  return (CUresult)SUCCESS;
}
CUresult cuModuleUnload(CUmodule module) {
  if (alive[EXECUTABLES]) note("unloaded while a graph may use it\n");
  alive[MODULES]--, free(module);
  return (CUresult)SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  ENTER(1)
  for (size_t i = 0; i < sizeof KERNELS / sizeof *KERNELS; i++)
    if (!strcmp(KERNELS[i].name, name) && strstr(module->ptx, name)) return *function = &KERNELS[i], (CUresult)SUCCESS;
  return (CUresult)NOT_FOUND;
}
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
  ENTER(1)
  *value = function->static_shared;
  return (CUresult)(attribute == 1 ? SUCCESS : INVALID_VALUE);
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  ENTER(1)
  if (attribute != 8 || value + function->static_shared > 232448) return (CUresult)INVALID_VALUE;
  function->dynamic_limit = value;
  return (CUresult)SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
  ENTER(1)
  if (!bytes) return (CUresult)INVALID_VALUE;
  if (bytes > (size_t)1 << 30) return (CUresult)NO_MEMORY;
  *address = (CUdeviceptr)(uintptr_t)aligned_alloc(256, (bytes + 255) / 256 * 256);
  alive[MEMORY]++;
  return (CUresult)SUCCESS;
}
CUresult cuMemFree_v2(CUdeviceptr address) {
  if (the_stream && the_stream->done < the_stream->queue.count && !broken) note("freed while it may be in use\n");
  alive[MEMORY]--, free((void *)(uintptr_t)address);
  return (CUresult)SUCCESS;
}
CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
  ENTER(1)
  *free_bytes = 1 << 30, *total = (size_t)5 << 30;
  return (CUresult)SUCCESS;
}
CUresult cuMemHostAlloc(void **memory, size_t bytes, unsigned int flags) {
  ENTER(1)
  note("pin %zu %u\n", bytes, flags);
  *memory = malloc(bytes), alive[PINNED]++;
  return (CUresult)SUCCESS;
}
CUresult cuMemFreeHost(void *memory) {
  for (int i = the_stream->done; i < the_stream->queue.count && !broken; i++)
    if (the_stream->queue.ops[i].to == memory || the_stream->queue.ops[i].from == memory) note("unpinned while it is in use\n");
  alive[PINNED]--, free(memory);
  return (CUresult)SUCCESS;
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
  ENTER(1)
  return put(stream, (Op){TO_DEVICE, .to = (void *)(uintptr_t)to, .from = (void *)from, .n = bytes});
}
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
  ENTER(1)
  return put(stream, (Op){TO_HOST, .to = to, .from = (void *)(uintptr_t)from, .n = bytes});
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
  ENTER(1)
  return put(stream, (Op){FILL, .to = (void *)(uintptr_t)to, .n = bytes, .value = value});
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags) {
  ENTER(1)
  note("stream %u\n", flags);
  the_stream = *stream = calloc(1, sizeof **stream), alive[STREAMS]++;
  return (CUresult)SUCCESS;
}
CUresult cuStreamDestroy_v2(CUstream stream) { alive[STREAMS]--, free(stream); return (CUresult)SUCCESS; }
CUresult cuStreamSynchronize(CUstream stream) {
  ENTER(1)
  return drain(stream, stream->base + stream->queue.count);
}
CUresult cuGraphCreate(CUgraph *graph, unsigned int flags) {
  ENTER(1)
  note("graph %u\n", flags);
  *graph = calloc(1, sizeof **graph), alive[GRAPHS]++;
  return (CUresult)SUCCESS;
}
CUresult cuGraphAddKernelNode_v2(CUgraphNode *made, CUgraph graph, const CUgraphNode *after, size_t waits,
                                 const CUDA_KERNEL_NODE_PARAMS *node) {
  ENTER(1)
  Nodes *nodes = &graph->nodes;
  unsigned size[] = {node->gridDimX, node->gridDimY, node->gridDimZ, node->blockDimX, node->blockDimY, node->blockDimZ, node->sharedMemBytes};
  if (nodes->count == 64 || waits > 32 || node->kern || node->ctx) return (CUresult)INVALID_VALUE;
  struct CUgraphNode_st *new = &nodes->nodes[nodes->count];
  CUresult bad = launched(&new->op, node->func, size, node->kernelParams, node->extra);
  if (bad) return bad;
  new->waits = (int)waits;
  for (size_t i = 0; i < waits; i++) note("after %d\n", new->after[i] = (int)(after[i] - nodes->nodes));
  *made = new, nodes->count++;
  return (CUresult)SUCCESS;
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec *made, CUgraph graph, unsigned long long flags) {
  ENTER(1)
  note("instantiate %d nodes %llu\n", graph->nodes.count, flags);
  *made = calloc(1, sizeof **made), (*made)->nodes = graph->nodes, alive[EXECUTABLES]++;
  return (CUresult)SUCCESS;
}
CUresult cuGraphDestroy(CUgraph graph) { alive[GRAPHS]--, free(graph); return (CUresult)SUCCESS; }
CUresult cuGraphExecDestroy(CUgraphExec graph) { alive[EXECUTABLES]--, free(graph); return (CUresult)SUCCESS; }
CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream) { ENTER(1) return put(stream, (Op){GRAPH, .from = &graph->nodes}); }

CUresult cuEventCreate(CUevent *event, unsigned int flags) {
  ENTER(1)
  note("event %u\n", flags);
  *event = calloc(1, sizeof **event), alive[EVENTS]++;
  return (CUresult)SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
  ENTER(1)
  CUresult bad = put(stream, (Op){RECORD, .to = event});
  event->at = stream->base + stream->queue.count;
  return bad;
}
CUresult cuEventSynchronize(CUevent event) { ENTER(1) return drain(the_stream, event->at); }
CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end) {
  ENTER(1)
  *ms = (float)(end->time - start->time); /* a millisecond a kernel */
  return (CUresult)SUCCESS;
}
CUresult cuEventDestroy_v2(CUevent event) {
  Ops *ops = &the_stream->queue; /* it may be destroyed before it is reached */
  for (int i = 0; i < ops->count; i++)
    if (ops->ops[i].kind == RECORD && ops->ops[i].to == event) ops->ops[i] = (Op){.kind = FILL};
  alive[EVENTS]--, free(event);
  return (CUresult)SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by,
                        unsigned int bz, unsigned int shared, CUstream stream, void **args, void **extra) {
  ENTER(1)
  Op op;
  CUresult bad = launched(&op, function, (unsigned[]){gx, gy, gz, bx, by, bz, shared}, args, extra);
  return bad ? bad : put(stream, op);
}

/* -- tensor maps: what the arguments say, and 128 bytes that tell them apart ------------------------------------------- */

static void note_numbers(const char *name, const void *values, int count, int size) {
  note(" %s", name);
  for (int i = 0; i < count; i++)
    note("%c%lld", i ? ',' : ' ', size == 8 ? ((const long long *)values)[i] : (long long)((const int *)values)[i]);
}

static CUresult encoded(CUtensorMap *map, const char *kind, int type, unsigned rank, void *address, const cuuint64_t *dims,
                        const cuuint64_t *strides) {
  if ((uintptr_t)map % 64 || (uintptr_t)address % 16) return (CUresult)INVALID_VALUE;
  note("map %s type %d at %p", kind, type, address);
  note_numbers("dims", dims, rank, 8), note_numbers("strides", strides, rank - 1, 8);
  for (int i = 0; i < 16; i++) map->opaque[i] = (uintptr_t)address + i;
  return (CUresult)SUCCESS;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *dims,
                                const cuuint64_t *strides, const cuuint32_t *box, const cuuint32_t *steps, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  ENTER(1)
  CUresult bad = encoded(map, "tiled", type, rank, address, dims, strides);
  if (bad) return bad;
  note_numbers("box", box, rank, 4), note_numbers("steps", steps, rank, 4);
  note(" how %d %d %d %d\n", interleave, swizzle, promotion, fill);
  return (CUresult)SUCCESS;
}
CUresult cuTensorMapEncodeIm2col(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *dims,
                                 const cuuint64_t *strides, const int *lower, const int *upper, cuuint32_t channels, cuuint32_t pixels,
                                 const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                 CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  ENTER(1)
  CUresult bad = encoded(map, "im2col", type, rank, address, dims, strides);
  if (bad) return bad;
  note_numbers("lower", lower, rank - 2, 4), note_numbers("upper", upper, rank - 2, 4);
  note(" channels %u pixels %u", channels, pixels), note_numbers("steps", steps, rank, 4);
  note(" how %d %d %d %d\n", interleave, swizzle, promotion, fill);
  return (CUresult)SUCCESS;
}
