import t from "tap";
import { preferredForm } from "../../src/engine/database.ts";

const accepted: readonly (readonly [accept: string | undefined, form: string])[] = [
  [undefined, "json"],
  ["", "json"],
  ["*/*", "json"],
  ["application/json", "json"],
  ["application/x-ndjson", "ndjson"],
  ["APPLICATION/X-NDJSON", "ndjson"],
  ["text/csv", "csv"],
  ['text/csv;charset="UTF-8";header=present', "csv"],
  ["text/csv, */*", "csv"],
  ["*/*, application/x-ndjson", "ndjson"],
  ["application/x-ndjson, application/json", "json"],
  ["application/x-ndjson, application/json;q=0.9", "ndjson"],
  ["application/x-ndjson;q=0.5, text/csv;q=0.500", "ndjson"],
  ["application/json;q=0, */*", "ndjson"],
  ["application/json;q=0, application/x-ndjson;q=0, */*", "csv"],
  ["text/html, application/xhtml+xml", "json"],
  ["application/json;q=0", "json"],
  ["text/csv;header=absent", "json"],
  ["text/csv;charset=iso-8859-1, application/x-ndjson;q=0.1", "ndjson"],
  ["text/csv;q=2, application/x-ndjson;q=0.1", "ndjson"],
  [",;,", "json"],
];

t.test("rows have the form that Accept prefers, or else JSON", async (t) => {
  t.same(
    accepted.map(([accept]) => [accept, preferredForm(accept)]),
    accepted,
  );
});
