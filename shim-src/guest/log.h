/* VGPU_LOG=stderr or a file name: one line a message. Silent without it. */
#ifndef VGPU_GUEST_LOG_H
#define VGPU_GUEST_LOG_H

__attribute__((format(printf, 1, 2))) void vgpu_log(const char *format, ...);

#endif
