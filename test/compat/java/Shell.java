import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/**
 * Runs Kafka's command-line tools one after the other in this JVM. A line of standard input is one call,
 * {@code {"tool": "TopicCommand", "args": [...], "stdin": "..."}}; a line of standard output is how it ended,
 * {@code {"exit": 0, "stdout": "...", "stderr": "..."}}. Ends with its input.
 */
public final class Shell {
    public static void main(String[] ignored) throws Exception {
        ObjectMapper json = new ObjectMapper();
        BufferedReader calls = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = calls.readLine(); line != null; line = calls.readLine()) {
            JsonNode call = json.readTree(line);
            String[] arguments = new String[call.get("args").size()];
            for (int i = 0; i < arguments.length; i++) {
                arguments[i] = call.get("args").get(i).asText();
            }
            ObjectNode answer = json.createObjectNode();
            try {
                Tool tool = Tool.run(call.get("tool").asText(), call.get("stdin").asText(), arguments);
                answer.put("exit", tool.exitCode).put("stdout", tool.stdout).put("stderr", tool.stderr);
            } catch (AssertionError | ReflectiveOperationException e) { // it hangs, or there is no such tool
                answer.put("exit", -1).put("stdout", "").put("stderr", e.toString());
            }
            answers.println(answer);
        }
        System.exit(0); // whatever threads the tools have left
    }
}
