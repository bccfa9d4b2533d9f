/* Reference counts of user objects (cuUserObjectCreate) that graphs hold. Called with the driver lock held. */
#ifndef ALIQUOT_FAKE_CUDA_USER_OBJECT_H
#define ALIQUOT_FAKE_CUDA_USER_OBJECT_H

#include "cuda_driver.h"

/* One graph's references to one user object. */
struct user_reference;

/*
 * Releases the driver lock, calls the destructors of user objects that lost their last reference while it was held, and
 * returns result. Every entry point that can delete a graph ends with this function.
 */
CUresult leave_and_run_destructors(CUresult result);

/* Gives a clone of a graph its own references to the same user objects. Returns false without host memory. */
bool user_references_copy(const struct user_reference *from, struct user_reference **to);
void user_references_release(struct user_reference **references);

#endif
