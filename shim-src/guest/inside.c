#include "guest/inside.h"

_Thread_local volatile bool vgpu_inside;
