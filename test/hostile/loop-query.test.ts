import t from "tap";
import { checkEach, escaped, fill, from, keys, large, long, openMeasured } from "./large-bodies.ts";

t.setTimeout(110_000);

t.test("no query holds the event loop", async (t) => {
  const { gateway, owner } = await openMeasured(t, () => '[query]\nextra_fields = ["hint"]\n');
  const queries = large.map(({ operation, name, args }) => {
    return { name, body: `{"${operation}":${args()}}` };
  });
  const hinted = (hint: string) => `{"Select":{${from},"columns":["*"],"hint":${hint}}}`;
  const others = [
    { name: "an extra field of many keys", body: hinted(`{${keys()}}`) },
    { name: "an extra field of lists", body: hinted(`[${fill("[]")}]`) },
    { name: "an unknown operation", body: `{"${long}":{}}` },
    { name: "an operation in escapes", body: `{"${escaped}":{}}` },
    { name: "a batch of nothing", body: `{"Batch":[${fill("{}")}]}` },
  ];
  await checkEach(t, gateway, [...queries, ...others], owner, "/query");
});
