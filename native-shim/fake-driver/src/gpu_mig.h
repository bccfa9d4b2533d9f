/*
 * MIG: a card that is split into instances.
 *
 * Each instance is a GPU file of its own, with its memory and multiprocessors, beside that of its card. CUDA uses it as
 * it uses a card, and processes on two instances share nothing. The card's file keeps the mode. Instances end at a
 * reset of the card and at a reboot; one that is created again has another UUID.
 *
 * Profiles, their placements and their figures are a *model* after published listings of nvidia-smi mig -lgip of A100
 * and H100 cards.
 */
#ifndef ALIQUOT_FAKE_GPU_MIG_H
#define ALIQUOT_FAKE_GPU_MIG_H

#include "gpu_file.h"

enum {
    GPU_MIG_SLICES = 7, /* of a card's compute */
    GPU_MIG_MEMORY_SLICES = 8,
    GPU_MIG_PROFILES = 7,
};

struct gpu_mig_profile {
    unsigned number;         /* nvml.h: NVML_GPU_INSTANCE_PROFILE_1_SLICE and so on */
    unsigned compute_number; /* nvml.h: NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE and so on; the whole instance */
    unsigned id;             /* the profile's ID on the card, as nvidia-smi mig -lgip shows it */
    unsigned slices;
    unsigned memory_slices;
    unsigned starts; /* bit n: it may begin at memory slice n */
    unsigned most;   /* instances of a card */
    unsigned multiprocessors;
    bool media; /* has decoder, JPEG and OFA engines beyond those of its size */
    uint32_t memory_mib;
    char name[16]; /* such as 1g.10gb+me */
};

/* What makes a GPU file an instance. */
struct gpu_instance {
    char card[48];    /* UUID */
    unsigned id;      /* of the GPU instance on its card, from 1; its only compute instance is number 0 */
    unsigned profile; /* 0 .. GPU_MIG_PROFILES - 1 */
    unsigned start;   /* its first memory slice */
};

bool gpu_mig_capable(const struct gpu_identity *card);

/* A profile of a card that is capable of MIG; number from 0 to GPU_MIG_PROFILES - 1. */
struct gpu_mig_profile gpu_mig_profile(const struct gpu_identity *card, unsigned number);

/* Whether the file is an instance. */
bool gpu_instance(const gpu_file *gpu, struct gpu_instance *instance);

/* The instances of a card among these files, in the order of their IDs; returns their number. */
size_t gpu_instances(const char *card, gpu_file *const *gpus, size_t count, gpu_file *instances[GPU_MIG_SLICES]);

/* Whether MIG is on, and whether it will be on after the next reset. */
bool gpu_mig_mode(const gpu_file *card);
bool gpu_mig_pending(const gpu_file *card);

/*
 * Turns MIG on or off. On an idle card that takes effect at once, as nvidia-smi resets it, else at the next reset. Off
 * needs a card without instances. Returns false and sets error to a sentence if the card cannot change.
 */
bool gpu_mig_set_mode(const char *directory, gpu_file *card, bool on, char error[GPU_ERROR_LENGTH]);

/* Creates an instance where its profile has room; on success error holds its UUID. */
bool gpu_mig_create(const char *directory, gpu_file *card, const char *profile, char error[GPU_ERROR_LENGTH]);

/* Removes an instance; refused while a process uses it, unless force. */
bool gpu_mig_destroy(const char *directory, gpu_file *instance, bool force, char error[GPU_ERROR_LENGTH]);

/* Removes the instances of a card, also those that processes use; a pending mode takes effect. */
void gpu_mig_reset(const char *directory, gpu_file *card);

#endif
