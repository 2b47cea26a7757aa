import java.io.BufferedWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.InterpretedProjection;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.types.*;
import org.apache.spark.unsafe.types.UTF8String;

/** Expressions over rows, row by row: an error of one row is the answer of that row alone. */
public class Answers implements java.util.function.BiFunction {
  private final Dataset frame;
  private final InternalRow[] rows;

  public Answers(Object frame, Object rows) {
    this.frame = (Dataset) frame;
    this.rows = (InternalRow[]) rows;
  }

  /** Reads one expression per line, writes one line of answers for each: its type, then its values, between tabs. */
  public Object apply(Object from, Object to) {
    try {
      List texts = Files.readAllLines(Paths.get((String) from), StandardCharsets.UTF_8);
      BufferedWriter out = Files.newBufferedWriter(Paths.get((String) to), StandardCharsets.UTF_8, new java.nio.file.OpenOption[0]);
      for (int i = 0; i < texts.size(); i++) {
        String text = (String) texts.get(i);
        out.write(answer(text.replace("\\n", "\n").replace("\\\\", "\\")));
        out.write("\n");
      }
      out.close();
    } catch (java.io.IOException error) {
      throw new RuntimeException(error);
    }
    return null;
  }

  private String answer(String text) {
    DataType type;
    List made = new ArrayList();
    try {
      Dataset selected = frame.selectExpr(new String[] {"(" + text + ") AS x"});
      type = selected.schema().apply(0).dataType();
      LogicalPlan plan = selected.queryExecution().optimizedPlan();
      if (!(plan instanceof Project)) {
        return "refused\tplan " + plan.getClass().getSimpleName();
      }
      while (plan instanceof Project) { // an expression that is used twice is computed by a projection below
        Project project = (Project) plan;
        InterpretedProjection step = new InterpretedProjection((scala.collection.immutable.Seq) project.projectList(), (scala.collection.immutable.Seq) project.child().output());
        step.initialize(0);
        made.add(0, step);
        plan = project.child();
      }
    } catch (Throwable error) {
      return "refused\t" + named(error);
    }
    StringBuilder said = new StringBuilder(type.simpleString());
    for (int i = 0; i < rows.length; i++) {
      said.append('\t');
      int before = said.length();
      try {
        InternalRow row = rows[i];
        for (int step = 0; step < made.size(); step++) {
          row = ((InternalRow) ((InterpretedProjection) made.get(step)).apply(row)).copy();
        }
        Object value = row.isNullAt(0) ? null : row.get(0, type);
        write(said, value, type);
      } catch (Throwable error) {
        said.setLength(before);
        said.append('!');
        said.append(named(error));
      }
    }
    return said.toString();
  }

  private static String named(Throwable error) {
    String name = error.getClass().getSimpleName();
    if (error instanceof org.apache.spark.SparkThrowable) {
      String condition = ((org.apache.spark.SparkThrowable) error).getCondition();
      if (condition != null) {
        name = condition;
      }
    }
    return name;
  }

  private static void write(StringBuilder out, Object value, DataType type) {
    if (value == null) {
      out.append("null");
    } else if (type instanceof StringType) {
      hex(out.append('s'), ((UTF8String) value).getBytes());
    } else if (type instanceof BinaryType) {
      hex(out.append('b'), (byte[]) value);
    } else if (type instanceof ArrayType) {
      ArrayData array = (ArrayData) value;
      DataType of = ((ArrayType) type).elementType();
      out.append('[');
      for (int i = 0; i < array.numElements(); i++) {
        if (i > 0) out.append(',');
        write(out, array.isNullAt(i) ? null : array.get(i, of), of);
      }
      out.append(']');
    } else if (type instanceof MapType) {
      MapData map = (MapData) value;
      MapType of = (MapType) type;
      out.append('{');
      for (int i = 0; i < map.numElements(); i++) {
        if (i > 0) out.append(',');
        write(out, map.keyArray().get(i, of.keyType()), of.keyType());
        out.append(':');
        write(out, map.valueArray().isNullAt(i) ? null : map.valueArray().get(i, of.valueType()), of.valueType());
      }
      out.append('}');
    } else if (type instanceof StructType) {
      InternalRow row = (InternalRow) value;
      StructField[] fields = ((StructType) type).fields();
      out.append('(');
      for (int i = 0; i < fields.length; i++) {
        if (i > 0) out.append(',');
        write(out, row.isNullAt(i) ? null : row.get(i, fields[i].dataType()), fields[i].dataType());
      }
      out.append(')');
    } else if (type instanceof DoubleType || type instanceof FloatType) {
      out.append('f').append(String.valueOf(value));
    } else if (type instanceof DecimalType) {
      out.append(((Decimal) value).toJavaBigDecimal().toPlainString());
    } else {
      out.append(String.valueOf(value));
    }
  }

  private static void hex(StringBuilder out, byte[] bytes) {
    for (int i = 0; i < bytes.length; i++) {
      String digits = Integer.toHexString(bytes[i] & 255);
      if (digits.length() < 2) out.append('0');
      out.append(digits);
    }
  }
}
