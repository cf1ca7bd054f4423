/* From a connection to a session: admits, reads the greeting, starts the worker or refuses. */
#ifndef VGPU_HOST_GUESTS_H
#define VGPU_HOST_GUESTS_H

#include "host/daemon/supervisor.h"

/* Accepts some of those who connected to this listener. */
void vgpu_guests_accept(struct vgpu_supervisor *supervisor, int listener);

/* Reads on where a greeting is not whole yet. */
void vgpu_guests_read(struct vgpu_supervisor *supervisor);

#endif
