package io.aliquot.deviceplugin.node;

import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** Reads and writes the agent's own Node. */
public interface NodeClient extends AutoCloseable {
    /** The latest Node that the watch has delivered; empty before the first one and after a deletion. Never blocks. */
    Optional<NodeView> latest();

    /**
     * The devices that drivers of dynamic resource allocation publish for the node; empty before the API server's first answer.
     * Never blocks.
     */
    Optional<List<DraDevice>> draDevices();

    /**
     * Asks the API server whether the GPU Operator is installed: whether the cluster has a ClusterPolicy or a GPUCluster. Waits
     * for the answer.
     *
     * @return empty if the API server did not answer
     */
    Optional<Boolean> hasGpuOperator();

    /**
     * Sets and removes labels and annotations; others stay.
     *
     * @throws NodeWriteException if the API server did not accept it
     */
    void patchMetadata(MetadataPatch patch) throws NodeWriteException;

    /**
     * Sets extended resources in the status, capacity and allocatable alike; other resources stay.
     *
     * @throws NodeWriteException if the API server did not accept them
     */
    void setExtendedResources(Map<String, Long> resources) throws NodeWriteException;

    /**
     * Removes extended resources from the status, capacity and allocatable alike.
     *
     * @throws NodeWriteException if the API server did not accept it
     */
    void removeExtendedResources(Collection<String> resources) throws NodeWriteException;

    /**
     * Sets a condition in the status; other conditions stay.
     *
     * @throws NodeWriteException if the API server did not accept it
     */
    void setCondition(NodeCondition condition) throws NodeWriteException;

    /**
     * Removes a condition from the status; other conditions stay.
     *
     * @throws NodeWriteException if the API server did not accept it
     */
    void removeCondition(String type) throws NodeWriteException;

    @Override
    void close();
}
