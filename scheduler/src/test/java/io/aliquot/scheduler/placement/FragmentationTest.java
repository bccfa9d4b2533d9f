package io.aliquot.scheduler.placement;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.placement.Fragmentation.Place;
import io.aliquot.scheduler.placement.Room.Shape;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;

class FragmentationTest {
    private static final Shape NODE = new Shape(96_000, 393_216, 8, 40_960, 100, 0);
    private static final Demand HALF = new Demand(4_000, 8_192, 1, false, 20_480, 50, Demand.ANY);
    private static final Demand WHOLE = new Demand(12_000, 8_192, 1, true, 0, 0, Demand.ANY);
    private static final Demand EIGHT = new Demand(32_000, 8_192, 8, true, 0, 0, Demand.ANY);
    private static final Demand CPU = new Demand(16_000, 8_192, 0, false, 0, 0, Demand.ANY);

    private final Fragmentation policy = new Fragmentation();

    @Test
    void halvesShareAGpuWhereWholeOnesAreAskedFor() {
        see(10, HALF, WHOLE);
        Room room = Room.of(NODE).with(HALF, 0); // its fullest GPU is half full
        policy.entered(room);

        assertThat(cost(HALF, room, 0)).isLessThan(cost(HALF, room, 1));
    }

    @Test
    void memoryAloneIsNotRoomWhereTheCoresAreGone() {
        Demand computing = new Demand(1_000, 1_024, 1, false, 4_096, 90, Demand.ANY);
        Demand remembering = new Demand(1_000, 1_024, 1, false, 36_864, 10, Demand.ANY);
        see(10, computing, remembering, WHOLE);
        Room room = Room.of(NODE).with(computing, 0).with(remembering, 1);
        int withRemembering = room.gpuMiB(0) < room.gpuMiB(1) ? 0 : 1;
        policy.entered(room);

        // The two fit on one GPU exactly.
        assertThat(cost(computing, room, withRemembering)).isLessThan(cost(computing, room, 2));
        assertThat(cost(remembering, room, 1 - withRemembering)).isLessThan(cost(remembering, room, 2));
    }

    @Test
    void aPodWithoutGpuGoesWhereCpuIsPlenty() {
        see(10, WHOLE);
        Room scarce = Room.of(NODE); // 12 CPUs for each GPU, which is what the pods want
        Room plenty = Room.of(new Shape(128_000, 393_216, 2, 40_960, 100, 0));
        policy.entered(scarce);
        policy.entered(plenty);

        assertThat(cost(CPU, plenty, 0)).isZero();
        assertThat(cost(CPU, scarce, 0)).isGreaterThan(900);
    }

    @Test
    void theLastNodeForEightGpusIsLeftToThoseWhoWantIt() {
        see(10, HALF, HALF, HALF, EIGHT);
        Room empty = Room.of(NODE);
        Room begun = empty.with(WHOLE, 0);
        policy.entered(empty);
        policy.entered(begun);

        assertThat(cost(WHOLE, begun, 1)).isLessThan(cost(WHOLE, empty, 0));
    }

    @Test
    void aModelThatSomeInsistOnIsLeftToThem() {
        Demand insisting = new Demand(4_000, 8_192, 1, true, 0, 0, 0b10);
        see(10, WHOLE, insisting);
        Room common = Room.of(NODE);
        Room wanted = Room.of(new Shape(96_000, 393_216, 8, 40_960, 100, 1));
        policy.entered(common);
        policy.entered(wanted);

        assertThat(cost(WHOLE, common, 0)).isLessThan(cost(WHOLE, wanted, 0));
    }

    @Test
    void whatTheNextPodCannotUseCountsWherePodsEndAndByHowEmptyTheClusterIs() {
        see(10, WHOLE);
        Room empty = Room.of(NODE);
        policy.entered(empty);
        change(empty, empty.with(EIGHT, 0));
        change(empty.with(EIGHT, 0), empty);
        double alone = idleness(HALF, empty); // half a GPU is left that no pod wants
        policy.entered(empty.with(EIGHT, 0));

        assertThat(alone).isPositive();
        assertThat(idleness(WHOLE, empty)).isZero();
        assertThat(idleness(HALF, empty)).isEqualTo(alone / 16); // half is free, to the fourth power
    }

    @Test
    void whatTheNextPodCannotUseDoesNotCountWhereNothingEnds() {
        see(10, WHOLE);
        Room empty = Room.of(NODE);
        policy.entered(empty);
        policy.entered(empty);
        change(empty, empty.with(EIGHT, 0));

        assertThat(idleness(HALF, empty)).isZero();
    }

    private void change(Room before, Room after) {
        policy.left(before);
        policy.entered(after);
    }

    private double idleness(Demand demand, Room room) {
        return policy.idleness(weigh(policy, demand, room, 0));
    }

    @Test
    void equalHistoriesGiveEqualCosts() {
        var other = new Fragmentation();
        var random = new Random(3);
        for (int i = 0; i < 500; i++) {
            Demand demand = List.of(HALF, WHOLE, EIGHT, CPU).get(random.nextInt(4));
            policy.arrives(demand);
            other.arrives(demand);
        }
        policy.entered(Room.of(NODE));
        other.entered(Room.of(NODE));

        assertThat(other.edition()).isEqualTo(policy.edition());
        assertThat(other.cost(weigh(other, HALF, Room.of(NODE), 0))).isEqualTo(cost(HALF, Room.of(NODE), 0));
    }

    /** What is kept from pod to pod is what would be worked out anew from the rooms there are. */
    @Test
    void scarcityDependsOnTheRoomsThatThereAreAndNotOnHowTheyCameToBe() {
        see(20, HALF, WHOLE, EIGHT);
        var random = new Random(7);
        List<Room> rooms = new ArrayList<>(List.of(Room.of(NODE), Room.of(NODE), Room.of(NODE)));
        rooms.forEach(policy::entered);
        for (int i = 0; i < 30; i++) {
            Demand demand = List.of(HALF, WHOLE, CPU).get(random.nextInt(3));
            Room best = rooms.stream()
                    .filter(room -> room.fits(demand))
                    .min(Comparator.comparingDouble(room -> cost(demand, room, first(demand, room))))
                    .orElse(null);
            if (best != null) {
                rooms.remove(best);
                policy.left(best);
                Room after = best.with(demand, first(demand, best));
                rooms.add(after);
                policy.entered(after);
            }
        }
        var fresh = new Fragmentation();
        for (int i = 0; i < 20; i++) {
            List.of(HALF, WHOLE, EIGHT).forEach(fresh::arrives);
        }
        rooms.forEach(fresh::entered);
        for (Room room : rooms) {
            if (room.fits(HALF)) {
                Place place = weigh(fresh, HALF, room, first(HALF, room));
                assertThat(fresh.cost(place)).isEqualTo(cost(HALF, room, first(HALF, room)));
            }
        }
    }

    /** By which it is told without looking whether a place can be among the best. */
    @Test
    void whateverHappensToTheClusterNoPlaceIsLikedMoreThanItsLastScoreTells() {
        long seed = System.nanoTime();
        var random = new Random(seed);
        see(20, HALF, WHOLE, EIGHT);
        List<Room> rooms = new ArrayList<>();
        for (int i = 0; i < 300; i++) {
            Room begun = Room.of(NODE).with(HALF, random.nextInt(8));
            rooms.add(i % 3 == 0 ? Room.of(NODE) : i % 3 == 1 ? begun : begun.with(WHOLE, 3));
        }
        rooms.forEach(policy::entered);
        Place place = weigh(policy, HALF, Room.of(NODE), 0);
        double last = policy.score(place);
        Market then = policy.market();
        double priced = policy.priced(place);
        double most = 0;
        double least = Double.MAX_VALUE;
        for (int i = 0; i < 2_000; i++) {
            happen(rooms, random);
            policy.arrives(HALF);
            double weighed = policy.weighed(place);
            double over = policy.market().atMost(last, then, priced, weighed, weighed);
            double single = policy.atMost(place);
            double now = policy.score(place);
            assertThat(now)
                    .as("seed %d, step %d", seed, i)
                    .isLessThanOrEqualTo(over)
                    .isLessThanOrEqualTo(single);
            most = Math.max(most, now);
            least = Math.min(least, now);
            if (i % 10 == 0) {
                last = now;
                then = policy.market();
                priced = policy.priced(place);
            }
        }
        assertThat(most - least).as("seed %d: scores do change", seed).isGreaterThan(1);
    }

    @Test
    void ofManyNodesOneThatChangesMakesNextToNoDifferenceToWhatTheOthersMayBeLiked() {
        see(20, HALF, WHOLE, EIGHT);
        Room begun = Room.of(NODE).with(WHOLE, 0);
        for (int i = 0; i < 255; i++) {
            policy.entered(begun);
        }
        Place place = weigh(policy, HALF, begun, 0);
        double before = policy.score(place);
        Market then = policy.market();
        double priced = policy.priced(place);
        change(begun, Room.of(NODE));

        assertThat(policy.market()).isNotSameAs(then);
        double weighed = policy.weighed(place);
        assertThat(policy.market().atMost(before, then, priced, weighed, weighed))
                .isBetween(policy.score(place), before + priced / 10);
        assertThat(policy.score(place)).isGreaterThan(before); // what it takes has become less scarce
    }

    /** So that it needn't be looked at again. */
    @Test
    void whateverHappensToTheClusterAPlaceThatIsOutdoneIsNeverLikedMore() {
        see(20, HALF, WHOLE, EIGHT, new Demand(1_000, 1_024, 1, false, 4_096, 90, Demand.ANY));
        long seed = Long.getLong("aliquot.seed", System.nanoTime());
        var random = new Random(seed);
        var rooms = new ArrayList<Room>();
        for (int i = 0; i < 20; i++) {
            rooms.add(Room.of(NODE));
            policy.entered(Room.of(NODE));
        }
        int outdone = 0;
        int neither = 0;
        for (int step = 0; step < 2_000; step++) {
            happen(rooms, random);
            // Any two places, be it of different nodes.
            Place place = anywhere(rooms, random);
            Place other = anywhere(rooms, random);
            if (policy.outdoes(place, other)) {
                outdone++;
                for (int later = 0; later < 5; later++) {
                    assertThat(policy.score(place))
                            .as("-Daliquot.seed=%d, step %d", seed, step)
                            .isGreaterThanOrEqualTo(policy.score(other));
                    happen(rooms, random);
                }
            } else if (!policy.outdoes(other, place)) {
                neither++;
            }
        }
        assertThat(outdone).as("-Daliquot.seed=%d", seed).isGreaterThan(100);
        assertThat(neither).as("-Daliquot.seed=%d", seed).isGreaterThan(100);
    }

    private Place anywhere(List<Room> rooms, Random random) {
        while (true) {
            Room room = rooms.get(random.nextInt(rooms.size()));
            Demand demand = random.nextBoolean() ? HALF : WHOLE;
            int gpu = random.nextInt(room.gpus());
            if (room.fits(demand) && room.holds(gpu, demand)) {
                return weigh(policy, demand, room, gpu);
            }
        }
    }

    /** Nodes fill up and are emptied, come and go. */
    private void happen(List<Room> rooms, Random random) {
        for (int change = 0; change < 5; change++) {
            Room before = rooms.remove(random.nextInt(rooms.size()));
            policy.left(before);
            Demand demand = random.nextBoolean() ? HALF : WHOLE;
            Room after = random.nextInt(3) > 0 && before.fits(demand)
                    ? before.with(demand, first(demand, before))
                    : Room.of(NODE);
            rooms.add(after);
            policy.entered(after);
        }
        if (random.nextInt(10) == 0 && rooms.size() > 100) {
            policy.left(rooms.remove(0));
        } else if (random.nextInt(5) == 0) {
            rooms.add(Room.of(NODE));
            policy.entered(Room.of(NODE));
        }
    }

    private static int first(Demand demand, Room room) {
        int gpu = 0;
        while (demand.gpus() > 0 && !room.holds(gpu, demand)) {
            gpu++;
        }
        return gpu;
    }

    private void see(int times, Demand... demands) {
        for (int i = 0; i < times; i++) {
            List.of(demands).forEach(policy::arrives);
        }
    }

    private double cost(Demand demand, Room room, int gpu) {
        return policy.cost(weigh(policy, demand, room, gpu));
    }

    private static Place weigh(Fragmentation policy, Demand demand, Room room, int gpu) {
        policy.edition();
        return policy.weigh(demand, room, room.with(demand, gpu));
    }
}
