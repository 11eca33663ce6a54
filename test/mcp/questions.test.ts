/** A hundred questions about a shop, answered with the fewest calls that a model needs. */
import path from "node:path";
import t from "tap";
import { askModel } from "../../bench/questions/model.ts";
import { isSame, playAll, questions, summarize } from "../../bench/questions/play.ts";
import { askAt, openSetting } from "../../bench/questions/setting.ts";
import { Shop, scales } from "../../bench/questions/shop.ts";

const opened = new AsyncDisposableStack();
t.teardown(() => opened.disposeAsync());
const shop = new Shop(scales.small);
const setting = await openSetting(opened, shop);
const ask = askAt(setting);

t.test("the best calls answer all questions", async (t) => {
  t.equal(questions.length, 100);
  const outcomes = await Array.fromAsync(playAll(ask, shop, questions));
  t.same(
    outcomes.filter(({ isRight }) => !isRight),
    [],
  );
  const { isReached, text } = summarize(outcomes);
  t.ok(isReached, text);
});

t.test("answers are compared by value, whatever their fields are called", async (t) => {
  t.ok(isSame([{ country: "AT", n: 3 }], [["AT", 3]]));
  t.ok(isSame(0.1 + 0.2, 0.3));
  for (const wrong of [[["AT", 4]], [["AT"]], [], 3, undefined, [["AT", "3"]]]) {
    t.notOk(isSame(wrong, [["AT", 3]]));
  }
});

t.test("a program used as the model is measured and its answer checked", async (t) => {
  const program = path.join(import.meta.dirname, "counting-model.ts");
  const asked = questions.filter(([id]) => id === "vips" || id === "no-city");
  await using forModel = new AsyncDisposableStack();
  const command = `'${process.execPath}' '${program}'`;
  const outcomes = await Array.fromAsync(
    askModel(forModel, command, { setting, ask, shop, asked }),
  );
  t.match(outcomes, [
    { id: "vips", isRight: true, calls: 1, bytes: 98 },
    { id: "no-city", isRight: false, calls: 1 },
  ]);
});
