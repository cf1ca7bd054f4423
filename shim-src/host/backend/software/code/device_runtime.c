/*
 * A replacement for libcudadevrt.a, which is machine code. Most programs that pass it to cuLink (numba,
 * PyCUDA) need only the grid-wide barrier of cooperative launches. Two registers tell a kernel the address of
 * its grid's workspace, and nvcc's headers read them in the same way. Functions that launch kernels are not
 * here: the software device knows them, and a real driver reports that they are missing.
 */
#include "host/backend/software/code/device_runtime.h"

#include <string.h>

/*
 * The word at offset 4 of the workspace. All blocks but the first add 1; the first adds what flips the
 * highest bit when all have added. Each block waits for that bit to change.
 */
const char vgpu_device_runtime[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".weak .func (.param .b64 handle) cudaCGGetIntrinsicHandle(.param .b32 scope)\n{\n"
    ".reg .b32 %low, %high;\n.reg .b64 %at;\n"
    "mov.u32 %high, %envreg1;\nmov.u32 %low, %envreg2;\nmov.b64 %at, {%low, %high};\n"
    "st.param.b64 [handle], %at;\nret;\n}\n"
    ".weak .func (.param .b32 result) cudaCGSynchronize(.param .b64 handle, .param .b32 flags)\n{\n"
    ".reg .b32 %x, %y, %all, %add, %before, %now, %changed, %error;\n.reg .b64 %at;\n"
    ".reg .pred %none, %leads, %first, %again;\n"
    "ld.param.b64 %at, [handle];\nmov.u32 %error, 1;\n"
    "setp.eq.u64 %none, %at, 0;\n@%none bra done;\n" /* not a cooperative launch: cudaErrorInvalidValue */
    "bar.sync 0;\n"
    "mov.u32 %x, %tid.x;\nmov.u32 %y, %tid.y;\nor.b32 %x, %x, %y;\nmov.u32 %y, %tid.z;\nor.b32 %x, %x, %y;\n"
    "setp.ne.u32 %leads, %x, 0;\n@%leads bra meet;\n"
    "mov.u32 %x, %nctaid.x;\nmov.u32 %y, %nctaid.y;\nmul.lo.u32 %all, %x, %y;\n"
    "mov.u32 %y, %nctaid.z;\nmul.lo.u32 %all, %all, %y;\n"
    "mov.u32 %x, %ctaid.x;\nmov.u32 %y, %ctaid.y;\nor.b32 %x, %x, %y;\nmov.u32 %y, %ctaid.z;\n"
    "or.b32 %x, %x, %y;\n"
    "setp.eq.u32 %first, %x, 0;\nsub.u32 %add, -2147483647, %all;\nselp.b32 %add, %add, 1, %first;\n"
    "membar.gl;\natom.global.add.u32 %before, [%at+4], %add;\n"
    "wait:\nld.volatile.global.u32 %now, [%at+4];\nxor.b32 %changed, %now, %before;\n"
    "setp.ge.s32 %again, %changed, 0;\n@%again bra wait;\n"
    "membar.gl;\n"
    "meet:\nbar.sync 0;\nmov.u32 %error, 0;\n"
    "done:\nst.param.b32 [result], %error;\nret;\n}\n";

bool vgpu_is_device_runtime(const void *archive, size_t size) {
  static const char magic[] = "!<arch>\n", member[] = "cuda_device_runtime";
  return size > sizeof magic && memcmp(archive, magic, sizeof magic - 1) == 0 &&
         memmem(archive, size, member, sizeof member - 1) != NULL;
}

bool vgpu_uses_device_runtime(const char *text) {
  return strstr(text, "cudaCGGetIntrinsicHandle") != NULL || strstr(text, "cudaCGSynchronize") != NULL;
}
