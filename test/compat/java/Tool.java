import org.apache.kafka.common.utils.internals.Exit;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/**
 * One run of one of Kafka's command-line tools, inside this JVM where it ends by itself (a JVM of its own costs a second
 * of CPU), or as a process where it must be stopped.
 */
final class Tool {
    private static final int SECONDS = 30;
    final int exitCode;
    final String stdout;
    final String stderr;

    private Tool(int exitCode, String stdout, String stderr) {
        this.exitCode = exitCode;
        this.stdout = stdout;
        this.stderr = stderr;
    }

    /** Thrown out of a tool in place of ending the JVM. */
    private static final class Exited extends Error {
        private static final long serialVersionUID = 1;

        Exited() {
            super("exit", null, false, false);
        }
    }

    /** Runs a tool's main. Tools end through Kafka's own Exit, so that its tests can do what is done here. */
    static Tool run(String name, String stdin, String... arguments) throws Exception {
        Class<?> main = Class.forName("org.apache.kafka.tools." + name);
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        InputStream realIn = System.in;
        PrintStream realOut = System.out;
        PrintStream realErr = System.err;
        Tool[] ended = {null};
        Exit.Procedure procedure = (code, message) -> {
            if (ended[0] == null) { // a tool that catches everything complains about this, and exits a second time
                ended[0] = new Tool(code, out.toString(), err.toString());
            }
            throw new Exited();
        };
        Exit.setExitProcedure(procedure);
        Exit.setHaltProcedure(procedure);
        Exit.setShutdownHookAdder((hook, runnable) -> { });
        System.setIn(new ByteArrayInputStream(stdin.getBytes(StandardCharsets.UTF_8)));
        System.setOut(new PrintStream(out, true));
        System.setErr(new PrintStream(err, true));
        Throwable[] thrown = {null};
        Thread thread = new Thread(() -> {
            try {
                main.getMethod("main", String[].class).invoke(null, (Object) arguments);
            } catch (java.lang.reflect.InvocationTargetException e) {
                thrown[0] = e.getCause();
            } catch (Throwable e) {
                thrown[0] = e;
            }
        }, name);
        thread.setDaemon(true);
        try {
            thread.start();
            thread.join(SECONDS * 1000L);
        } finally {
            System.setIn(realIn);
            System.setOut(realOut);
            System.setErr(realErr);
        }
        Tool result = ended[0] != null ? ended[0] : new Tool(0, out.toString(), err.toString());
        Scenarios.check(!thread.isAlive(), "%s is not done after %d s: %s", name, SECONDS, result);
        if (ended[0] == null && thrown[0] != null) { // what a JVM of its own would do
            java.io.StringWriter trace = new java.io.StringWriter();
            thrown[0].printStackTrace(new java.io.PrintWriter(trace));
            return new Tool(1, result.stdout, result.stderr + "Exception in thread \"main\" " + trace);
        }
        return result;
    }

    /** Runs a tool that must succeed. */
    static Tool ok(String name, String... arguments) throws Exception {
        return okWithInput(name, "", arguments);
    }

    static Tool okWithInput(String name, String stdin, String... arguments) throws Exception {
        Tool tool = run(name, stdin, arguments);
        Scenarios.check(tool.exitCode == 0, "%s %s: %s", name, String.join(" ", arguments), tool);
        return tool;
    }

    /** Starts a tool as a process of its own, with its stdout in a file. */
    static Running start(String name, String... arguments) throws Exception {
        List<String> command = new ArrayList<>(List.of(Path.of(System.getProperty("java.home"), "bin", "java").toString(),
            "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData",
            "-Dlog4j2.configurationFile=" + System.getProperty("log4j2.configurationFile"),
            "-cp", System.getProperty("java.class.path"), "org.apache.kafka.tools." + name));
        command.addAll(List.of(arguments));
        Path out = Files.createTempFile("tool", ".out");
        out.toFile().deleteOnExit();
        return new Running(new ProcessBuilder(command).redirectOutput(out.toFile())
            .redirectError(ProcessBuilder.Redirect.INHERIT).start(), out);
    }

    /** Runs a tool that works in the background of its JVM to its end, as a process, and returns what it printed. */
    static List<String> process(String name, String... arguments) throws Exception {
        try (Running tool = start(name, arguments)) {
            Scenarios.check(tool.process().waitFor(SECONDS, java.util.concurrent.TimeUnit.SECONDS),
                "%s is not done after %d s", name, SECONDS);
            Scenarios.check(tool.process().exitValue() == 0, "%s: exit code %d", name, tool.process().exitValue());
            return tool.lines();
        }
    }

    record Running(Process process, Path out) implements AutoCloseable {
        List<String> lines() {
            try {
                return Files.readAllLines(out);
            } catch (java.io.IOException e) {
                throw new java.io.UncheckedIOException(e);
            }
        }

        /** Ends the tool by SIGTERM, as a user's Ctrl-C would, and waits. */
        @Override
        public void close() throws InterruptedException {
            process.destroy();
            if (!process.waitFor(10, java.util.concurrent.TimeUnit.SECONDS)) {
                process.destroyForcibly();
            }
        }
    }

    List<String> lines() {
        return stdout.lines().toList();
    }

    @Override
    public String toString() {
        String text = "exit code " + exitCode + ", printed: " + stdout + " / " + stderr;
        return text.length() > 1500 ? text.substring(0, 1500) : text;
    }
}
