#ifndef ALIQUOT_CUDA_HOOKS_H
#define ALIQUOT_CUDA_HOOKS_H

/* In a forked child: CUDA ordinals may mean other GPUs to it. */
void aliquot_cuda_forget_devices(void);

#endif
