import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.functions.RuntimeContext;
import org.apache.flink.api.common.state.KeyedStateStore;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.typeutils.base.IntSerializer;
import org.apache.flink.cep.nfa.NFA;
import org.apache.flink.cep.nfa.NFAState;
import org.apache.flink.cep.nfa.aftermatch.AfterMatchSkipStrategy;
import org.apache.flink.cep.nfa.compiler.NFACompiler;
import org.apache.flink.cep.nfa.sharedbuffer.SharedBuffer;
import org.apache.flink.cep.nfa.sharedbuffer.SharedBufferAccessor;
import org.apache.flink.cep.pattern.Pattern;
import org.apache.flink.cep.pattern.conditions.SimpleCondition;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;

/**
 * The matches that Flink's own automaton finds: a pattern with rows a line in, its matches a line out, both JSON, as {@code tests/support/flink_matches.py} writes and reads them.
 * A row is its position in a text of letters; a condition is a letter.
 */
public final class FlinkMatches {
    private static final long END = 1_000_000;
    private static String text;

    /** Whether a row has a letter. */
    private static final class Letter extends SimpleCondition<Integer> {
        private final String letter;

        Letter(JsonNode letter) {
            this.letter = letter.asText();
        }

        @Override
        public boolean filter(Integer row) {
            return text.substring(row, row + 1).equals(letter);
        }
    }

    @SuppressWarnings("unchecked")
    private static <T> T fake(InvocationHandler handler, Class<?>... interfaces) {
        return (T) Proxy.newProxyInstance(FlinkMatches.class.getClassLoader(), interfaces, handler);
    }

    /** State of one key, in memory. */
    private static Object state() {
        Map<Object, Object> map = new HashMap<>();
        Object[] value = new Object[1];
        return fake((proxy, method, given) -> switch (method.getName()) {
            case "get" -> map.get(given[0]);
            case "put" -> map.put(given[0], given[1]) == proxy ? proxy : null;
            case "putAll" -> {
                map.putAll((Map<?, ?>) given[0]);
                yield null;
            }
            case "remove" -> map.remove(given[0]) == proxy ? proxy : null;
            case "contains" -> map.containsKey(given[0]);
            case "entries" -> new HashMap<>(map).entrySet();
            case "keys" -> new ArrayList<>(map.keySet());
            case "values" -> new ArrayList<>(map.values());
            case "iterator" -> map.entrySet().iterator();
            case "isEmpty" -> map.isEmpty();
            case "value" -> value[0];
            case "update" -> {
                value[0] = given[0];
                yield null;
            }
            case "clear" -> {
                map.clear();
                value[0] = null;
                yield null;
            }
            default -> throw new UnsupportedOperationException(method.getName());
        }, MapState.class, ValueState.class);
    }

    private static AfterMatchSkipStrategy skip(String strategy, String stage) {
        return switch (strategy) {
            case "no_skip" -> AfterMatchSkipStrategy.noSkip();
            case "skip_to_next" -> AfterMatchSkipStrategy.skipToNext();
            case "skip_past_last_event" -> AfterMatchSkipStrategy.skipPastLastEvent();
            case "skip_to_first" -> AfterMatchSkipStrategy.skipToFirst(stage);
            default -> AfterMatchSkipStrategy.skipToLast(stage);
        };
    }

    private static Pattern<Integer, Integer> pattern(JsonNode stages, AfterMatchSkipStrategy skip) {
        Pattern<Integer, Integer> pattern = null;
        for (JsonNode stage : stages) {
            String name = stage.get("name").asText(), without = stage.get("without").asText();
            if (pattern != null && !without.isEmpty()) {
                pattern = without.equals("not_next") ? pattern.notNext("no_" + name) : pattern.notFollowedBy("no_" + name);
                pattern = pattern.where(new Letter(stage.get("other")));
            }
            pattern = settings(begun(pattern, stage, name, skip), stage);
        }
        return pattern;
    }

    private static Pattern<Integer, Integer> begun(Pattern<Integer, Integer> before, JsonNode stage, String name, AfterMatchSkipStrategy skip) {
        String contiguity = stage.get("contiguity").asText();
        if (stage.get("group").size() > 0) {
            Pattern<Integer, Integer> group = pattern(stage.get("group"), AfterMatchSkipStrategy.noSkip());
            return before == null ? Pattern.begin(group, skip)
                : contiguity.equals("next") ? before.next(group)
                : contiguity.equals("followed_by") ? before.followedBy(group)
                : before.followedByAny(group);
        }
        Pattern<Integer, Integer> begun = before == null ? Pattern.begin(name, skip)
            : contiguity.equals("next") ? before.next(name)
            : contiguity.equals("followed_by") ? before.followedBy(name)
            : before.followedByAny(name);
        return begun.where(new Letter(stage.get("letter")));
    }

    private static Pattern<Integer, Integer> settings(Pattern<Integer, Integer> pattern, JsonNode stage) {
        int least = stage.get("least").asInt();
        JsonNode most = stage.get("most");
        if (most.isNull() || most.asInt() != 1) {
            pattern = most.isNull() ? pattern.timesOrMore(least) : most.asInt() == least ? pattern.times(least) : pattern.times(least, most.asInt());
            String repetition = stage.get("repetition").asText();
            pattern = repetition.equals("consecutive") ? pattern.consecutive() : repetition.equals("combinations") ? pattern.allowCombinations() : pattern;
        }
        pattern = stage.get("optional").asBoolean() ? pattern.optional() : pattern;
        pattern = stage.get("greedy").asBoolean() ? pattern.greedy() : pattern;
        return stage.get("until").asText().isEmpty() ? pattern : pattern.until(new Letter(stage.get("until")));
    }

    private static List<Object> matches(JsonNode drawn) throws Exception {
        text = drawn.get("text").asText();
        AfterMatchSkipStrategy skip = skip(drawn.get("skip").get(0).asText(), drawn.get("skip").get(1).asText());
        Pattern<Integer, Integer> pattern = pattern(drawn.get("stages"), skip).within(Duration.ofMillis(drawn.get("window").asLong()));
        NFA<Integer> automaton = NFACompiler.<Integer>compileFactory(pattern, false).createNFA();
        automaton.open(FlinkMatches.<RuntimeContext>fake((proxy, method, given) -> null, RuntimeContext.class), null);
        NFAState state = automaton.createInitialNFAState();
        KeyedStateStore store = fake((proxy, method, given) -> state(), KeyedStateStore.class);
        SharedBuffer<Integer> buffer = new SharedBuffer<>(store, IntSerializer.INSTANCE);
        List<Object> matches = new ArrayList<>();
        for (int row = 0; row <= text.length(); row++) {
            long time = row == text.length() ? END : drawn.get("times").get(row).asLong();
            try (SharedBufferAccessor<Integer> accessor = buffer.getAccessor()) {
                add(matches, automaton.advanceTime(accessor, state, time, skip).f0);
                if (row < text.length()) {
                    add(matches, automaton.process(accessor, state, row, time, skip, () -> 0L));
                }
            }
        }
        buffer.releaseCacheStatisticsTimer();
        return matches;
    }

    private static void add(List<Object> matches, Collection<Map<String, List<Integer>>> found) {
        for (Map<String, List<Integer>> match : found) {
            List<Object> rows = new ArrayList<>();
            match.forEach((stage, taken) -> taken.forEach(row -> rows.add(List.of(stage, row))));
            matches.add(rows);
        }
    }

    public static void main(String[] unused) throws Exception {
        ObjectMapper json = new ObjectMapper();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Object answer;
            try {
                answer = matches(json.readTree(line));
            } catch (Exception refused) {
                answer = refused.toString();
            }
            System.out.println(json.writeValueAsString(answer));
        }
        System.exit(0);
    }
}
