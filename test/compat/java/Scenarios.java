import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.BooleanSupplier;

/** Runs scenarios in turn and prints one line for each: {@code CASE name PASS|FAIL seconds detail}. */
final class Scenarios {
    static final String BOOTSTRAP = environment("BOOTSTRAP");
    private static final String PREFIX = environment("PREFIX");
    static final String[] CODECS = {"none", "gzip", "snappy", "lz4", "zstd"};
    private static final long SCENARIO_SECONDS = 40;

    interface Body {
        void run() throws Exception;
    }

    private final ExecutorService worker = Executors.newCachedThreadPool(task -> {
        Thread thread = new Thread(task, "scenario");
        thread.setDaemon(true); // a scenario that hangs must not keep the program alive
        return thread;
    });
    private final java.io.PrintStream report = System.out;

    void run(String name, Body body) {
        long start = System.nanoTime();
        Throwable failure = null;
        Future<?> future = worker.submit(() -> {
            body.run();
            return null;
        });
        try {
            future.get(SCENARIO_SECONDS, TimeUnit.SECONDS);
        } catch (TimeoutException e) {
            future.cancel(true);
            failure = new AssertionError("not done after " + SCENARIO_SECONDS + " s");
        } catch (Exception e) {
            failure = e.getCause() == null ? e : e.getCause();
        }
        double seconds = (System.nanoTime() - start) / 1e9;
        if (failure != null) {
            failure.printStackTrace();
        }
        report.printf("CASE %s %s %.1f %s%n", name, failure == null ? "PASS" : "FAIL", seconds,
            failure == null ? "" : failure.toString().replaceAll("\\s+", " "));
        report.flush();
    }

    /** The full name of one of this run's topics or groups. */
    static String topic(String name) {
        return PREFIX + "-" + name;
    }

    static void check(boolean holds, String format, Object... arguments) {
        if (!holds) {
            throw new AssertionError(String.format(format, arguments));
        }
    }

    static void until(String what, BooleanSupplier holds) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
        while (!holds.getAsBoolean()) {
            check(System.nanoTime() < end, "timed out: %s", what);
            Thread.sleep(20);
        }
    }

    private static String environment(String name) {
        String value = System.getenv(name);
        if (value == null || value.isEmpty()) {
            throw new IllegalStateException(name + " must be set");
        }
        return value;
    }
}
