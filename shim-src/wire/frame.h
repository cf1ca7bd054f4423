/*
 * Frames between a guest library and vgpu-hostd. docs/explanation/transport.md gives the reasons.
 *
 * A session is an ordered byte stream each way (unix, vsock or tcp): a HELLO of the guest, a WELCOME of the
 * host, then the guest's requests. The host answers all but one-way ones; besides answers it sends only signs
 * of life.
 *
 *   frame = header (40 bytes) | body (fixed size for each opcode) | bulk (0..n bytes) | padding to 8
 *
 * Integers are little-endian, and no structure has implicit padding. The build refuses other machines.
 *
 * A host that refuses the version of a greeting still sends a WELCOME with its version and name. No new major
 * version is needed for new opcodes, new feature bits, and bytes at the end of HELLO, WELCOME and of array
 * elements that carry their own size.
 *
 * `sequence` counts the guest's frames of one session. Frames of one lane (a guest thread) run in order; no
 * frame starts before every one-way frame with a lower sequence has finished, whatever its lane. The host
 * keeps the failures of one-way frames and reports one in `deferred` of each reply, oldest first.
 *
 * PARK: the host parks a call that waits for the device, serves other frames meanwhile, and answers out of
 * order. Without the feature, and after VGPU_PARK_LIMIT_MS, it answers CUDA_ERROR_NOT_READY, and the guest's
 * thread repeats the call.
 *
 * RING: over a unix socket the host sends the descriptor of sealed memory with two rings (ring.h) with the
 * WELCOME. All later frames go through the rings; the socket serves as doorbell (doorbell.h).
 *
 * SHARED_REGION: the host maps memory of the guest, whose descriptor comes over the socket before the answer
 * is in the ring. In a frame with VGPU_FLAG_SHARED_REGION the bulk is one struct vgpu_span instead of the
 * data; a reply with the flag says which part of the span is filled. Only calls that the description marks as
 * raw may have the flag. The host reads or writes the span between the call and its reply, or the reply of
 * any later waiting call.
 *
 * MAP: a shared region can also be memory of the device at its address in the guest (shared_region_map).
 *
 * VM_MEMORY: over vsock or TCP, in memory that a VM shares with its host (a PCI device, ivshmem). A host that
 * accepts puts a struct vgpu_vm_mark behind the WELCOME, by which the guest recognizes the memory. Then,
 * still with sequence 0, the guest proposes places for the rings (VGPU_OP_VM_RINGS) until the host accepts
 * one or the guest gives up. After that RING and SHARED_REGION are active; a request for a region is a struct
 * vgpu_vm_place, and no descriptor is sent. The guest proposes because only its kernel knows which places
 * processes of the VM still map. A place is free if the guest's lock (VGPU_VM_GUEST_LOCKS) and the host's
 * lock were both acquired.
 *
 * PRINT: a reply with VGPU_FLAG_PRINTED says that kernels printed something, which the call `printed`
 * fetches. Without the feature the output goes to the host's log.
 *
 * EXCHANGE: sessions of one guest can open each other's memory, by tokens; IPC: also for cuIpc*; SHARES: also
 * physical memory and pools. GRAPHS: the host takes graph_edges, and launches of one executable run one after
 * the other.
 *
 * RESUME: the session survives its connection. The guest sends a struct vgpu_resume behind its HELLO. When
 * its connection breaks, it connects again with `join` and `join_secret` in its HELLO; the host answers with
 * a struct vgpu_resumed behind the WELCOME. Each end then sends its frames again that the other has not
 * received. The guest keeps a frame until a later one was answered; the host keeps a reply until a request
 * acknowledges it or a later one (vgpu_frame_acknowledge), and skips frames that it has received before.
 * After VGPU_OP_GOODBYE, and at a host that does not wait for a new connection, the end of the connection is
 * the end of the session.
 *
 * RESUME_RINGS: rings survive the connection unchanged. Only the descriptor of the last shared region is sent
 * again, if it was lost. Each end rings the new doorbell once. The mark in the rings' memory shows that both
 * ends see the same memory, not restored from a snapshot.
 *
 * ALIVE: a host that works on a call sends a sign of life every VGPU_ALIVE_MS: over a stream a header without
 * body, VGPU_OP_ALIVE as a reply with sequence 0; with rings a ring of the doorbell. A guest that receives
 * nothing for VGPU_CALL_LIMIT_MS treats the host as lost. While it receives signs of life it waits up to
 * VGPU_WORK_LIMIT_MS.
 */
#ifndef VGPU_WIRE_FRAME_H
#define VGPU_WIRE_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codes.h" /* enum vgpu_status */

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the wire is little-endian; this machine needs conversions that are not written yet"
#endif

/* Only tests build daemons with another version (meson.build). */
#ifndef VGPU_WIRE_MAJOR
#define VGPU_WIRE_MAJOR 1
#endif
#define VGPU_WIRE_MINOR 0
#define VGPU_WIRE_MAGIC "VGPUWIRE" /* 8 bytes, no terminating zero on the wire */

/* Both ends refuse longer frames. A longer copy takes several. */
#define VGPU_FRAME_MAX (1024u * 1024u + 4096u)
#define VGPU_BULK_MAX (1024u * 1024u)
/*
 * The driver has taken an asynchronous copy from pageable memory of up to so many bytes when the call
 * returns, and does not wait for the device:
 * https://docs.nvidia.com/cuda/cuda-driver-api/api-sync-behavior.html
 */
#define VGPU_COPY_TAKEN (64u * 1024u)
#define VGPU_BODY_MAX 512u

/* Time limits in milliseconds. */
#define VGPU_CONNECT_LIMIT_MS 2000   /* for the connection and the WELCOME together */
#define VGPU_CALL_LIMIT_MS 10000     /* an answer to a call, or a sign of life */
#define VGPU_ALIVE_MS 3000           /* between two signs of life */
#define VGPU_WORK_LIMIT_MS 900000    /* an answer to a call that waits for work of unknown length */
#define VGPU_PARK_LIMIT_MS 300000    /* a parked call; shorter, so that only a stuck host exceeds the above */
#define VGPU_HANDSHAKE_LIMIT_MS 5000 /* for HELLO at the host */

/* Opcodes. The low 16 bits number an entry of the description (shim-src/api), which never changes. */
#define VGPU_OP_RANGE_MASK 0xffff0000u
#define VGPU_OP_CONTROL 0x00000000u
#define VGPU_OP_CUDA 0x00010000u
#define VGPU_OP_NVML 0x00020000u

enum vgpu_control_opcode {
  VGPU_OP_HELLO = 1,
  VGPU_OP_PING = 2,             /* no body; answered with no body */
  VGPU_OP_DEVICE_FACTS = 3,     /* vgpu_facts_request -> vgpu_facts_reply + bulk: vgpu_device_facts[] */
  VGPU_OP_DEVICE_USAGE = 4,     /* vgpu_usage_request -> vgpu_usage_reply */
  VGPU_OP_DEVICE_PROCESSES = 5, /* vgpu_usage_request -> vgpu_facts_reply + bulk: vgpu_process_facts[] */
  VGPU_OP_SHARED_REGION_ADD =
      6, /* vgpu_shared_region_request -> vgpu_shared_region_reply; its memory comes over the socket */
  VGPU_OP_SHARED_REGION_DROP = 7, /* vgpu_shared_region_drop -> nothing: the host has forgotten it */
  VGPU_OP_ALIVE = 8,              /* from the host: it is still carrying out a call */
  VGPU_OP_VM_RINGS = 9,           /* vgpu_vm_place -> vgpu_vm_place_reply: a place for the rings */
  VGPU_OP_GOODBYE = 10,           /* one-way, no body: the session ends with this connection */
  VGPU_OP_DEVICE_QUERY = 11,      /* vgpu_query_request + bulk -> vgpu_query_reply + bulk (query.h) */
};

#define VGPU_FLAG_REPLY 0x1u
#define VGPU_FLAG_ONEWAY 0x2u        /* no reply will be sent */
#define VGPU_FLAG_SHARED_REGION 0x4u /* the bulk is a vgpu_span, which locates the data */
#define VGPU_FLAG_PRINTED 0x8u       /* reply: there is output of kernels to fetch */
#define VGPU_FLAG_KNOWN (VGPU_FLAG_REPLY | VGPU_FLAG_ONEWAY | VGPU_FLAG_SHARED_REGION | VGPU_FLAG_PRINTED)

/* Feature bits: the guest offers some, the host answers with those that it accepts. */
#define VGPU_FEATURE_SHARED_REGION 0x2u
#define VGPU_FEATURE_MAP 0x10u       /* shared regions may be device memory, too: shared_region_map */
#define VGPU_FEATURE_PRINT 0x20u     /* output of kernels goes to the guest: VGPU_FLAG_PRINTED */
#define VGPU_FEATURE_ALIVE 0x40u     /* signs of life while the host works on a call */
#define VGPU_FEATURE_EXCHANGE 0x200u /* memory of other sessions: share_memory */
#define VGPU_FEATURE_MEMORY 0x80u    /* in a question for sessions: vgpu_memory_told follows the list */
#define VGPU_FEATURE_RING 0x8u       /* the layout of ring.h; 0x1 was one with two cache lines a ring */
/* Rings and shared regions in memory that a VM shares with its host. Bit 0x100 was an older form. */
#define VGPU_FEATURE_VM_MEMORY 0x400u
#define VGPU_FEATURE_RESUME 0x800u /* the session survives its connection */
/* In HELLO: the session also survives with rings. Older guests have only one of the two features. */
#define VGPU_FEATURE_RESUME_RINGS 0x1000u
#define VGPU_FEATURE_IPC 0x2000u        /* share_memory and share_event for what cuIpc* shares */
#define VGPU_FEATURE_SHARES 0x4000u     /* also for physical memory and pools */
#define VGPU_FEATURE_PARK 0x8000u       /* answers come out of order */
#define VGPU_FEATURE_READ_ONLY 0x10000u /* shared_region_map for memory that the device only reads */
#define VGPU_FEATURE_GRAPHS 0x20000u    /* graph_edges, and the host orders the launches of an executable */
#define VGPU_FEATURE_MIRROR 0x40000u    /* managed_mirror: the host moves bytes of managed variables */
#define VGPU_FEATURE_LOADS 0x80000u  /* function_load: the first launch of a kernel reports what is wrong */
#define VGPU_FEATURE_GATES 0x100000u /* upload_room and gate_reached */

struct vgpu_frame {
  uint32_t length; /* of the whole frame: pad8(sizeof header + body + bulk) */
  uint32_t opcode;
  uint32_t flags;
  uint32_t lane;     /* the guest's thread; 0: not given */
  uint32_t body;     /* bytes of body, 0..VGPU_BODY_MAX */
  uint32_t bulk;     /* bytes of bulk, 0..VGPU_BULK_MAX */
  uint64_t sequence; /* a reply has the sequence of its request */
  /* Reply: CUresult, nvmlReturn_t or vgpu_status, by the opcode's range. Request: vgpu_frame_acknowledge, or
   * 0. */
  int32_t status;
  int32_t deferred; /* reply: first failure of an earlier one-way frame, else 0 */
};
_Static_assert(sizeof(struct vgpu_frame) == 40, "frame header");

/*
 * With VGPU_FEATURE_RESUME, in a request: `sequence` is that of the last reply that arrived. All replies sent
 * before it have arrived, too.
 */
static inline void vgpu_frame_acknowledge(struct vgpu_frame *frame, uint64_t sequence) {
  frame->status = (int32_t)(uint32_t)sequence;
  frame->deferred = (int32_t)(uint32_t)(sequence >> 32);
}
static inline uint64_t vgpu_frame_acknowledged(const struct vgpu_frame *frame) {
  return (uint64_t)(uint32_t)frame->deferred << 32 | (uint32_t)frame->status;
}

/* The place of bulk data in a shared region, in bytes. */
struct vgpu_span {
  uint32_t shared_region;
  uint32_t reserved;
  uint64_t offset;
  uint64_t length;
};
_Static_assert(sizeof(struct vgpu_span) == 24, "span");
/*
 * Bytes copied per call. A longer span delays other threads. This length takes 10 s at 27 MB/s, within
 * VGPU_CALL_LIMIT_MS, and is long enough for a processor to store past its caches.
 */
#define VGPU_SPAN_MAX (256u << 20)

/*
 * The purpose of a connection. VGPU_LIBRARY_SESSIONS begins no session: the host answers the greeting with
 * vgpu_sessions_reply and closes. An older host answers VGPU_STATUS_REFUSED.
 */
enum vgpu_library { VGPU_LIBRARY_CUDA = 1, VGPU_LIBRARY_NVML = 2, VGPU_LIBRARY_SESSIONS = 3 };

struct vgpu_hello {
  char magic[8];
  uint16_t major;
  uint16_t minor;
  uint32_t features;
  uint32_t frame_max; /* longest frame the guest will read */
  uint32_t library;   /* enum vgpu_library */
  uint32_t pid;       /* of the guest's process in its own pid namespace; not verified */
  /* Inode of that namespace (/proc/self/ns/pid), to find a process of a container. 0: not given, or an older
   * guest. */
  uint32_t pid_namespace;
  uint64_t join;        /* session to continue (VGPU_FEATURE_RESUME), else 0 */
  uint64_t join_secret; /* from its WELCOME */
  char program[64];     /* for the host's log; zero-padded */
};
_Static_assert(sizeof(struct vgpu_hello) == 112, "hello");

struct vgpu_welcome {
  char magic[8];
  uint16_t major;
  uint16_t minor;
  uint32_t features;  /* features of HELLO that the session uses */
  uint32_t frame_max; /* longest frame the host will read */
  uint32_t device_count;
  int32_t cuda_version; /* 13000 is 13.0 */
  uint32_t simulated;   /* 1: this host has a simulated GPU */
  uint64_t session;
  uint64_t secret;
  uint64_t memory_limit; /* bytes of device memory for this session; 0: no limit but the device's */
  uint32_t handle_limit;
  uint32_t ring_size;    /* with VGPU_FEATURE_RING: bytes of each ring, whose memory comes along */
  char nvml_version[32]; /* "580.65.06"; zero-terminated */
  char host[64];         /* "vgpu-hostd 0.1.0 software"; zero-terminated */
};
_Static_assert(sizeof(struct vgpu_welcome) == 160, "welcome");

/* Follows a HELLO with VGPU_FEATURE_RESUME; struct vgpu_resumed follows the WELCOME that answers it. */
struct vgpu_resume {
  /* Sequence of the last reply that arrived; with rings the number of descriptors that arrived; else 0. */
  uint64_t received;
  /* vgpu_machine() of the guest, so that a host on the same kernel can find its process; 0: not given. */
  uint64_t machine;
};
struct vgpu_resumed {
  uint64_t next; /* all frames before this sequence have arrived */
  uint64_t mark; /* with rings: the value at VGPU_RING_MARK. Added after the first version */
};
#define VGPU_RESUMED_FIRST 8u
_Static_assert(offsetof(struct vgpu_resumed, mark) == VGPU_RESUMED_FIRST, "resumed");

#define VGPU_VM_MARK_BYTES 16u
/*
 * Places begin and end at multiples of this number, which is a multiple of every page size. The first place
 * is for marks.
 */
#define VGPU_VM_STEP 65536u
/*
 * The guest's lock for byte x of the memory is at x plus this offset, far behind the end of any file. So the
 * locks of both ends can be in one file if guest and host are one machine.
 */
#define VGPU_VM_GUEST_LOCKS (1ull << 62)

struct vgpu_vm_mark {
  uint64_t offset; /* in the VM's memory, below VGPU_VM_STEP */
  uint8_t mark[VGPU_VM_MARK_BYTES];
};
_Static_assert(sizeof(struct vgpu_vm_mark) == 24, "mark in a VM's memory");

/* Instead of a place for the rings: the socket carries the frames, because ... */
#define VGPU_VM_NOT_SEEN UINT64_MAX         /* the guest does not see this memory */
#define VGPU_VM_NO_ROOM (UINT64_MAX - 1ull) /* no place is free */

struct vgpu_vm_place {
  uint64_t bytes; /* of the rings: the most that both ends have */
  uint64_t offset;
};
struct vgpu_vm_place_reply {
  uint32_t shared_region; /* its number, in vgpu_span; 0: another session has this place */
  uint32_t reserved;
  uint64_t next; /* 0: the host accepts the place; else the offset to try next */
};
_Static_assert(sizeof(struct vgpu_vm_place_reply) == 16, "a place in a VM's memory");

static inline uint64_t vgpu_vm_steps(uint64_t bytes) {
  return (bytes + VGPU_VM_STEP - 1) / VGPU_VM_STEP * VGPU_VM_STEP;
}

/*
 * A session of the asking guest (same vsock CID, or same user of a unix socket). A "claim" comes from the
 * guest's greeting, and the host cannot verify it. All other fields are the host's own.
 */
struct vgpu_session_facts {
  uint64_t session;
  uint64_t age;           /* milliseconds since it began */
  uint64_t memory;        /* bytes of device memory it holds, of all devices */
  uint64_t launches;      /* kernels that ran, those of graphs too */
  uint64_t calls;         /* frames that were carried out */
  uint64_t refused;       /* frames that ended with an error */
  int32_t last_refusal;   /* the last such error: CUresult or nvmlReturn_t by `library`; 0: none */
  uint32_t library;       /* claim: enum vgpu_library */
  uint32_t pid;           /* claim: in the namespace below */
  uint32_t pid_namespace; /* claim: inode of the process's pid namespace; 0: not told */
  char program[64];       /* claim: zero-padded, printable ASCII */
  /* Added after the first version: an older host's facts end here. */
  uint32_t carrier; /* enum vgpu_carrier */
  uint32_t reserved;
};
#define VGPU_SESSION_FACTS_FIRST 128u
_Static_assert(offsetof(struct vgpu_session_facts, carrier) == VGPU_SESSION_FACTS_FIRST, "session facts");
_Static_assert(sizeof(struct vgpu_session_facts) == 136, "session facts");

#define VGPU_KERNEL_NAME_BYTES 240u

/* Answers a greeting with VGPU_LIBRARY_SESSIONS; bulk: vgpu_session_facts[], oldest session first. */
struct vgpu_sessions_reply {
  struct vgpu_welcome welcome; /* session, secret and ring_size are 0 */
  uint32_t count;              /* elements in the bulk */
  uint32_t element_size;       /* of one, so that later hosts can append fields */
  uint64_t turned_away;        /* connections of this guest that the host refused so far */
  int32_t last_turned_away;    /* why, the last time: enum vgpu_status; 0: none */
  uint32_t turned_away_age;    /* seconds since the last time */
  /* Added after the first version: an older host's reply ends here. */
  uint64_t
      kernels_refused;  /* launches of this guest of kernels that the host cannot run, in all its sessions */
  uint32_t refused_age; /* seconds since the last such launch */
  uint32_t reserved;    /* 0 */
  char refused_program[64]; /* claim: program of that launch; zero-padded, printable ASCII */
  char refused_kernel[VGPU_KERNEL_NAME_BYTES]; /* kernel of that launch, possibly cut; zero-padded, printable
                                                  ASCII */
};
#define VGPU_SESSIONS_REPLY_FIRST 184u
_Static_assert(offsetof(struct vgpu_sessions_reply, kernels_refused) == VGPU_SESSIONS_REPLY_FIRST,
               "sessions reply");
_Static_assert(sizeof(struct vgpu_sessions_reply) == 504, "sessions reply");

/*
 * Facts about this guest's device memory, in bytes. They follow the sessions in the bulk if the greeting
 * offered VGPU_FEATURE_MEMORY and the welcome has it. Later hosts append fields.
 */
struct vgpu_memory_told {
  uint64_t limit;      /* bytes that a new session of this guest may hold at most; 0: the devices limit it */
  uint32_t limited_by; /* enum vgpu_memory_limit: what sets the limit */
  uint32_t line;       /* the line of hostd.conf that allows this guest; 0: the host has no such file */
  uint64_t refused;    /* refused allocations of this guest; the fields below describe the last one */
  uint64_t refused_bytes;   /* requested */
  uint64_t refused_limit;   /* the limit that refused it */
  uint64_t refused_free;    /* bytes that were free within the limit */
  uint32_t refused_by;      /* enum vgpu_memory_limit */
  uint32_t refused_age;     /* seconds */
  char refused_program[64]; /* claim: its program; zero-padded, printable ASCII */
};
_Static_assert(sizeof(struct vgpu_memory_told) == 120, "memory told");

struct vgpu_shared_region_request {
  uint64_t bytes;
};
struct vgpu_shared_region_reply {
  uint32_t shared_region; /* its number, in vgpu_span */
  uint32_t reserved;
};
_Static_assert(sizeof(struct vgpu_shared_region_reply) == 8, "shared region");
struct vgpu_shared_region_drop {
  uint32_t shared_region;
  uint32_t reserved;
};

#define VGPU_DEVICES_MAX 32u
#define VGPU_ATTRIBUTES_MAX 192u /* CUdevice_attribute 0..191; 13.5 ends at 161 */

struct vgpu_facts_request {
  uint32_t first;
  uint32_t count; /* devices wanted; fewer come when they do not fit a frame */
};

struct vgpu_facts_reply {
  uint32_t count;        /* elements in the bulk */
  uint32_t element_size; /* of one, so that later hosts can append fields */
};

/* Facts about one device that never change. */
struct vgpu_device_facts {
  char name[128]; /* zero-terminated; ends in " (simulated)" on a software device */
  uint8_t uuid[16];
  uint64_t total_memory; /* bytes */
  uint32_t pci_domain;
  uint32_t pci_bus;
  uint32_t pci_device;
  uint32_t compute_major;
  uint32_t compute_minor;
  uint32_t simulated;
  uint8_t attribute_known[VGPU_ATTRIBUTES_MAX / 8]; /* bit n: attributes[n] is valid */
  int32_t attributes[VGPU_ATTRIBUTES_MAX];
};
_Static_assert(sizeof(struct vgpu_device_facts) == 968, "device facts");

struct vgpu_usage_request {
  uint32_t device;
  uint32_t wants_persistence; /* 1; an older guest sends 0, and gets 0 in `persistence` */
};

struct vgpu_usage_reply {
  uint64_t total;              /* bytes, of the whole device */
  uint64_t used;               /* bytes, by all sessions */
  uint32_t gpu_utilisation;    /* per cent */
  uint32_t memory_utilisation; /* per cent of time the memory was busy */
  uint32_t temperature;        /* degrees Celsius; 0: not known */
  uint32_t power;              /* milliwatts; 0: not known */
  uint32_t power_limit;        /* milliwatts; 0: not known */
  uint16_t processes;          /* sessions of this guest that hold memory or a context */
  uint16_t persistence;        /* 1: the driver stays initialized between programs */
};
_Static_assert(sizeof(struct vgpu_usage_reply) == 40, "usage");

struct vgpu_process_facts {
  uint32_t pid; /* from its HELLO */
  uint32_t reserved;
  uint64_t used; /* bytes on the device asked for */
};
_Static_assert(sizeof(struct vgpu_process_facts) == 16, "process facts");

static inline uint32_t vgpu_frame_length(uint32_t body, uint32_t bulk) {
  return (uint32_t)((sizeof(struct vgpu_frame) + (uint64_t)body + bulk + 7u) & ~(uint64_t)7u);
}

/*
 * True if the sizes in the header are consistent and within limits. Check this before you read the rest of
 * the frame.
 */
static inline bool vgpu_frame_sound(const struct vgpu_frame *frame) {
  return frame->body <= VGPU_BODY_MAX && frame->bulk <= VGPU_BULK_MAX &&
         frame->length == vgpu_frame_length(frame->body, frame->bulk) && frame->length <= VGPU_FRAME_MAX &&
         (frame->flags & ~VGPU_FLAG_KNOWN) == 0;
}

#endif
