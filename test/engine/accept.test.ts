import t from "tap";
import { formOf } from "../../src/engine/server.ts";

const wanted: readonly (readonly [accept: string | undefined, form: string])[] = [
  [undefined, "json"],
  ["", "json"],
  ["*/*", "json"],
  ["application/*", "json"],
  ["application/json", "json"],
  ["application/x-ndjson", "ndjson"],
  ["APPLICATION/X-NDJSON", "ndjson"],
  ["text/csv", "csv"],
  ["text/csv; charset=utf-8", "csv"],
  ['text/csv;charset="UTF-8";header=present', "csv"],
  ["text/*", "csv"],
  ["text/csv, */*", "csv"],
  ["text/csv, */*;q=0.1", "csv"],
  ["*/*, application/x-ndjson", "ndjson"],
  ["application/x-ndjson, application/json", "json"],
  ["application/x-ndjson, application/json;q=0.9", "ndjson"],
  ["application/x-ndjson;q=0.5, text/csv;q=0.8", "csv"],
  ["application/x-ndjson;q=0.5, text/csv;q=0.500", "ndjson"],
  ["application/json;q=0, */*", "ndjson"],
  ["application/json;q=0, application/x-ndjson;q=0, */*", "csv"],
  ["text/html, application/xhtml+xml", "json"],
  ["application/json;q=0", "json"],
  ["text/csv;header=absent", "json"],
  ["text/csv;charset=iso-8859-1, application/x-ndjson;q=0.1", "ndjson"],
  ["text/csv;q=2, application/x-ndjson;q=0.1", "ndjson"],
  ["text/csv;q=nonsense", "json"],
  [",;,", "json"],
];

t.test("rows are in the form that Accept wants most, and else in JSON", async (t) => {
  for (const [accept, form] of wanted) t.equal(formOf(accept), form, String(accept));
});
