/*
 * Says in the file itself whose it is, so that an installer never takes our library for NVIDIA's or the
 * other way round: note section .note.vgpu, owner "VGPU", type 1, a JSON text.
 */
#if defined(__aarch64__) || defined(__arm__)
#define TYPE(name) %name
#else
#define TYPE(name) @name
#endif
#define TEXT(macro) QUOTE(macro)
#define QUOTE(words) #words
  .section .note.vgpu, "a", TYPE(note)
  .balign 4
  .long 2f - 1f
  .long 4f - 3f
  .long 1
1:
  .asciz "VGPU"
2:
  .balign 4
3:
  .ascii "{\"component\":\"", TEXT(VGPU_COMPONENT), "\",\"version\":\"", VGPU_VERSION, "\",\"wire\":", TEXT(VGPU_WIRE), "}"
4:
  .balign 4
  .section .note.GNU-stack, "", TYPE(progbits)
