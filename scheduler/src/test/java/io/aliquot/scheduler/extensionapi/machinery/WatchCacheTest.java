package io.aliquot.scheduler.extensionapi.machinery;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.List;
import java.util.OptionalLong;
import org.junit.jupiter.api.Test;

class WatchCacheTest {
    private final WatchCache<String> store = new WatchCache<>(String::length);

    @Test
    void nothingCanBeContinuedBeforeTheFirstList() {
        store.put("a", "a1", 5);
        assertThat(store.covers(5)).isFalse();
        store.listed(6);
        assertThat(store.covers(5)).isFalse();
        assertThat(store.covers(6)).isTrue();
        assertThat(store.version()).isEqualTo(6);
    }

    @Test
    void aReaderThatIsSlowerThanTheLogIsToldSo() throws Exception {
        store.listed(1);
        for (int i = 2; i < WatchCache.LOG_LENGTH + 3; i++) {
            store.put("a", "a" + i, i);
        }
        assertThat(store.await(0, 10, 0)).isEmpty();
        assertThat(store.covers(1)).isFalse();
        assertThat(store.covers(2)).isTrue();
        assertThat(store.await(store.oldest(), 1, 0)
                        .orElseThrow()
                        .events()
                        .get(0)
                        .version())
                .isEqualTo(3);
    }

    /** Regression: a tenant who changed the labels of a pod, a megabyte of them, ended the scheduler. */
    @Test
    void theLogOfLargeObjectsIsShorter() throws Exception {
        store.listed(1);
        for (int i = 2; i < 3000; i++) {
            store.put("a", "a".repeat(1 << 16) + i, i);
        }
        long kept = 2998 - store.oldest();
        assertThat(kept << 16).isBetween(1L, 64L << 20);
        assertThat(store.await(0, 10, 0)).isEmpty();
        assertThat(store.await(store.oldest(), 10_000, 0).orElseThrow().events())
                .hasSize((int) kept);
        assertThat(store.covers(2999 - kept)).isTrue();
        assertThat(store.covers(2998 - kept)).isFalse();
    }

    @Test
    void aDeletionOfUnknownVersionReachesEveryWatch() throws Exception {
        store.put("a", "a1", 1);
        store.listed(1);
        store.put("b", "b9", 9);
        store.remove("a", OptionalLong.empty());
        var batch = store.await(0, 10, 0).orElseThrow();
        assertThat(batch.events()).extracting(WatchCache.Event::version).containsExactly(9L, Long.MAX_VALUE);
        assertThat(batch.events()).extracting(WatchCache.Event::shown).containsExactly(9L, 9L);
        assertThat(batch.version()).hasValue(9);
        assertThat(store.await(0, 1, 0).orElseThrow().version())
                .as("further events follow")
                .isEmpty();
    }

    @Test
    void aNamespaceIsAPrefixOfKeysAndNotOfNames() {
        for (String key : List.of("team/a", "team/b", "team-2/a", "tea/m")) {
            store.put(key, key, 1);
        }
        assertThat(store.after("team/", "").values()).containsExactly("team/a", "team/b");
        assertThat(store.after("team/", "team/a").values()).containsExactly("team/b");
        assertThat(store.after("", "team/a").values()).containsExactly("team/b");
    }
}
