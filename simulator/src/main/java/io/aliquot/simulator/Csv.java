package io.aliquot.simulator;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** A file of comma-separated values without quotes, its first line naming the columns. */
final class Csv {
    private final Path file;
    private final List<String> header;
    private final List<Row> rows = new ArrayList<>();

    private Csv(Path file, List<String> header) {
        this.file = file;
        this.header = header;
    }

    /**
     * Reads a file.
     *
     * @throws TraceException where it isn't one that has all these columns
     */
    static Csv read(Path file, String... columns) {
        List<String> lines;
        try {
            lines = Files.readAllLines(file, StandardCharsets.UTF_8);
        } catch (IOException e) {
            throw new TraceException("can't read " + file + ": " + e, e);
        }
        if (lines.isEmpty()) {
            throw new TraceException(file + ": empty; expected a first line with " + String.join(",", columns));
        }
        var csv = new Csv(file, split(lines.get(0)));
        for (String column : columns) {
            if (!csv.header.contains(column)) {
                throw new TraceException(file + ":1: no column " + column + "; expected " + String.join(",", columns));
            }
        }
        for (int i = 1; i < lines.size(); i++) {
            if (!lines.get(i).isBlank()) {
                csv.rows.add(csv.new Row(i + 1, split(lines.get(i))));
            }
        }
        return csv;
    }

    private static List<String> split(String line) {
        return Arrays.stream(line.split(",", -1)).map(String::strip).toList();
    }

    /** Whether the first line names it. */
    boolean has(String column) {
        return header.contains(column);
    }

    List<Row> rows() {
        return rows;
    }

    /** One line after the first. */
    final class Row {
        private final int line;
        private final List<String> cells;

        private Row(int line, List<String> cells) {
            this.line = line;
            this.cells = cells;
            if (cells.size() != header.size()) {
                throw wrong("has " + cells.size() + " values, and the first line names " + header.size());
            }
        }

        /** Empty where the file has no such column. */
        String text(String column) {
            int at = header.indexOf(column);
            return at < 0 ? "" : cells.get(at);
        }

        int number(String column, int least, int most) {
            try {
                int number = Integer.parseInt(text(column));
                if (number >= least && number <= most) {
                    return number;
                }
            } catch (NumberFormatException e) {
                // Told below.
            }
            throw wrong(column + " is \"" + text(column) + "\"; expected a whole number from " + least + " to " + most);
        }

        TraceException wrong(String what) {
            return new TraceException(file + ":" + line + ": " + what);
        }
    }
}
