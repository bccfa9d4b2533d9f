package io.aliquot.simulator;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.commons.csv.CSVFormat;
import org.apache.commons.csv.CSVParser;
import org.apache.commons.csv.CSVRecord;

/** A CSV file (RFC 4180) with column names in the first line. Errors name the file and the line. */
final class CsvFile {
    private static final CSVFormat FORMAT =
            CSVFormat.RFC4180.builder().setIgnoreEmptyLines(true).setTrim(true).get();

    private final Path file;
    private final List<String> header;
    private final List<Row> rows = new ArrayList<>();

    private CsvFile(Path file, List<String> header) {
        this.file = file;
        this.header = header;
    }

    /**
     * Reads a file.
     *
     * @throws TraceException if the file is unreadable, malformed or lacks one of the columns
     */
    static CsvFile read(Path file, String... columns) {
        try (CSVParser parser = CSVParser.parse(file, StandardCharsets.UTF_8, FORMAT)) {
            var records = parser.iterator();
            if (!records.hasNext()) {
                throw new TraceException(file + ": empty; expected a first line with " + String.join(",", columns));
            }
            var csv = new CsvFile(file, records.next().toList());
            for (String column : columns) {
                if (!csv.has(column)) {
                    throw new TraceException(
                            file + ":1: no column " + column + "; expected " + String.join(",", columns));
                }
            }
            while (records.hasNext()) {
                CSVRecord cells = records.next();
                if (cells.size() > 1 || !cells.get(0).isBlank()) {
                    csv.rows.add(csv.new Row(parser.getCurrentLineNumber(), cells));
                }
            }
            return csv;
        } catch (IOException | UncheckedIOException e) {
            throw new TraceException("cannot read " + file + ": " + e, e);
        }
    }

    boolean has(String column) {
        return header.contains(column);
    }

    List<Row> rows() {
        return rows;
    }

    /** A line below the column names. */
    final class Row {
        private final long line;
        private final CSVRecord cells;

        private Row(long line, CSVRecord cells) {
            this.line = line;
            this.cells = cells;
            if (cells.size() != header.size()) {
                throw invalid("has " + cells.size() + " values, and the first line names " + header.size());
            }
        }

        /** The text of a cell; empty if the file has no such column. */
        String text(String column) {
            int index = header.indexOf(column);
            return index < 0 ? "" : cells.get(index);
        }

        /**
         * The number in a cell.
         *
         * @throws TraceException if the cell is not a whole number from {@code min} to {@code max}
         */
        int number(String column, int min, int max) {
            try {
                int number = Integer.parseInt(text(column));
                if (number >= min && number <= max) {
                    return number;
                }
            } catch (NumberFormatException e) {
                // The message below covers this case.
            }
            throw invalid(column + " is \"" + text(column) + "\"; expected a whole number from " + min + " to " + max);
        }

        TraceException invalid(String problem) {
            return new TraceException(file + ":" + line + ": " + problem);
        }
    }
}
