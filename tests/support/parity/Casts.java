import java.io.BufferedWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.List;
import java.util.TreeMap;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.Dataset;

/** The casts that Spark puts around the columns of an expression, where the text has none. */
public class Casts implements java.util.function.BiFunction {
  private final Dataset frame;

  public Casts(Object frame, Object unused) {
    this.frame = (Dataset) frame;
  }

  /** Reads one expression per line, writes for each one its columns, each with the types it is cast to, the innermost first: d1=string,date. */
  public Object apply(Object from, Object to) {
    try {
      List texts = Files.readAllLines(Paths.get((String) from), StandardCharsets.UTF_8);
      BufferedWriter out = Files.newBufferedWriter(Paths.get((String) to), StandardCharsets.UTF_8, new java.nio.file.OpenOption[0]);
      for (int i = 0; i < texts.size(); i++) {
        String text = (String) texts.get(i);
        out.write(casts(text.replace("\\n", "\n").replace("\\\\", "\\")));
        out.write("\n");
      }
      out.close();
    } catch (java.io.IOException error) {
      throw new RuntimeException(error);
    }
    return null;
  }

  private String casts(String text) {
    TreeMap found = new TreeMap();
    try {
      Dataset selected = frame.selectExpr(new String[] {"(" + text + ") AS x"});
      Project project = (Project) selected.queryExecution().analyzed();
      walk((Expression) project.projectList().apply(0), "", found);
    } catch (Throwable error) {
      return "";
    }
    StringBuilder said = new StringBuilder();
    for (Object name : found.keySet()) {
      said.append(said.length() == 0 ? "" : "\t").append(name).append('=').append(found.get(name));
    }
    return said.toString();
  }

  /** A column that stands in two places with other casts has ``?`` for them. */
  private static void walk(Expression node, String around, TreeMap found) {
    if (node instanceof AttributeReference) {
      String name = ((AttributeReference) node).name();
      Object before = found.get(name);
      found.put(name, before == null || before.equals(around) ? around : "?");
      return;
    }
    String type = node instanceof Cast ? ((Cast) node).dataType().simpleString() : "";
    String inside = node instanceof Cast ? (around.isEmpty() ? type : type + "," + around) : "";
    scala.collection.immutable.Seq children = (scala.collection.immutable.Seq) node.children();
    for (int i = 0; i < children.size(); i++) {
      walk((Expression) children.apply(i), inside, found);
    }
  }
}
