package io.aliquot.scheduler.apiserver;

/** A Node object; one that is deleted and created again has another uid. */
public record NodeId(String name, String uid) {}
