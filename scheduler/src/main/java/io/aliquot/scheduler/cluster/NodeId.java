package io.aliquot.scheduler.cluster;

/** A Node object; one that is deleted and created again has another uid. */
public record NodeId(String name, String uid) {}
