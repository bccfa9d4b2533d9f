package io.aliquot.scheduler.extensionapi.objects;

import io.aliquot.scheduler.extensionapi.machinery.MetaTypes.ApiObject;
import io.aliquot.scheduler.extensionapi.machinery.MetaTypes.Column;
import io.aliquot.scheduler.extensionapi.machinery.MetaTypes.Metadata;
import io.aliquot.scheduler.extensionapi.machinery.Resource;
import io.aliquot.scheduler.extensionapi.machinery.WatchCache;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.GpuQuota;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.GpuQuotaStatus;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.QuotaPart;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.Quota;
import io.aliquot.scheduler.ledger.QuotaResource;
import io.aliquot.scheduler.ledger.QuotaUsage;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;
import org.springframework.stereotype.Component;

/**
 * The gpuquotas: the ResourceQuotas that limit GPUs, with what pods hold of them. What is used changes with pods, so an
 * object has the version up to which pods were reported when the change was noticed. Thread-safe.
 */
@Component
public final class GpuQuotas extends Resource<GpuQuotas.Stored> {
    private static final List<Column> COLUMNS = List.of(
            Resource.column("Name", "string", 0, "Name of the ResourceQuota"),
            Resource.column("Memory", "string", 0, "GPU memory used and allowed, in MiB"),
            Resource.column("Cores", "string", 0, "Compute used and allowed, in percent of a GPU"),
            Resource.column("vGPUs", "string", 0, "vGPUs used and allowed"));

    private static final Map<String, Function<Stored, String>> FIELDS = Map.of(
            "metadata.name", stored -> stored.usage().quota().name(),
            "metadata.namespace", stored -> stored.usage().quota().namespace());

    /** A quota, and the version up to which pods were reported then. */
    public record Stored(QuotaUsage usage, long version) {}

    private static final int BYTES = 1000;

    private final Ledger ledger;
    private final GpuShares shares;
    private boolean listed;

    GpuQuotas(Ledger ledger, GpuShares shares) {
        super("GpuQuota", COLUMNS, FIELDS, new WatchCache<>(stored -> BYTES));
        this.ledger = ledger;
        this.shares = shares;
    }

    /** The ledger may know a pod a moment before its version is reported, so watches from this version get the change. */
    @Override
    public synchronized void refresh() {
        WatchCache<Stored> store = store();
        long reached = shares.store().version();
        var now = new HashMap<String, QuotaUsage>();
        ledger.quotas()
                .forEach(usage -> now.put(
                        GpuShares.key(usage.quota().namespace(), usage.quota().name()), usage));
        List.copyOf(store.after("", "").keySet()).stream()
                .filter(key -> !now.containsKey(key))
                .forEach(key -> store.remove(key, reached, reached + 1));
        now.forEach((key, usage) -> {
            if (store.find(key).filter(known -> known.usage().equals(usage)).isEmpty()) {
                store.put(key, new Stored(usage, reached), reached, reached + 1);
            }
        });
        if (listed) {
            store.reached(reached);
        } else {
            store.listed(reached);
            listed = true;
        }
    }

    @Override
    public boolean isMadeOnDemand() {
        return true;
    }

    @Override
    public String namespace(Stored stored) {
        return stored.usage().quota().namespace();
    }

    @Override
    public Map<String, String> labels(Stored stored) {
        return Map.of();
    }

    @Override
    public GpuQuota print(Stored stored) {
        Quota quota = stored.usage().quota();
        return new GpuQuota(
                new Metadata(quota.name(), quota.namespace(), quota.uid(), Long.toString(stored.version()), null, null),
                new GpuQuotaStatus(
                        part(stored.usage(), QuotaResource.MEMORY),
                        part(stored.usage(), QuotaResource.CORES),
                        part(stored.usage(), QuotaResource.VGPUS)));
    }

    private static @Nullable QuotaPart part(QuotaUsage usage, QuotaResource what) {
        Long hard = usage.quota().hard().get(what);
        return hard == null ? null : new QuotaPart(hard, what.of(usage.used()));
    }

    @Override
    public List<Object> cells(ApiObject printed) {
        var quota = (GpuQuota) printed;
        return Arrays.asList(
                quota.metadata().name(),
                cell(quota.status().memoryMiB(), "Mi"),
                cell(quota.status().cores(), "%"),
                cell(quota.status().vgpus(), ""));
    }

    private static String cell(@Nullable QuotaPart part, String unit) {
        return part == null ? "-" : Resource.fraction(part.used(), part.hard(), unit);
    }
}
