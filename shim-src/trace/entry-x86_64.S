/*
 * dlsym and dlopen as interposed. The loader takes the caller from the return address (RTLD_NEXT, RUNPATH),
 * so the real function is jumped to with the stack as the caller left it.
 */
  .text

  .globl dlsym
  .type dlsym, @function
dlsym:
  .cfi_startproc
  endbr64
  pushq %rdi
  .cfi_adjust_cfa_offset 8
  pushq %rsi
  .cfi_adjust_cfa_offset 8
  subq $8, %rsp /* aligned to 16 for the call */
  .cfi_adjust_cfa_offset 8
  movq 24(%rsp), %rdx
  call vgpu_trace_dlsym
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  popq %rsi
  .cfi_adjust_cfa_offset -8
  popq %rdi
  .cfi_adjust_cfa_offset -8
  testq %rax, %rax
  jnz 1f
  testq %rdx, %rdx
  jz 1f
  jmp *%rdx
1:
  ret
  .cfi_endproc
  .size dlsym, . - dlsym

  .globl dlopen
  .type dlopen, @function
dlopen:
  .cfi_startproc
  endbr64
  pushq %rdi
  .cfi_adjust_cfa_offset 8
  pushq %rsi
  .cfi_adjust_cfa_offset 8
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
  movq 24(%rsp), %rdx
  call vgpu_trace_dlopen
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  popq %rsi
  .cfi_adjust_cfa_offset -8
  popq %rdi
  .cfi_adjust_cfa_offset -8
  testq %rax, %rax
  jz 1f
  jmp *%rax
1:
  ret
  .cfi_endproc
  .size dlopen, . - dlopen

  .section .note.GNU-stack, "", @progbits
