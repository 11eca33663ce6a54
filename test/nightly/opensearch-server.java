import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import org.opensearch.Version;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.node.Node;
import org.opensearch.plugins.PluginInfo;

/** One node of OpenSearch with the modules of its distribution. Arguments: a directory, a port. */
class Server extends Node {
  static final boolean IS_2 = Version.CURRENT.major == 2;

  /** In OpenSearch 2, most have names that end in `Plugin` instead. */
  static final List<String> MODULES =
      List.of(
          "transport.Netty4ModulePlugin",
          "analysis.common.CommonAnalysisModulePlugin",
          "index.reindex.ReindexModulePlugin",
          "join.ParentJoinModulePlugin",
          "percolator.PercolatorModulePlugin",
          "index.mapper.MapperExtrasModulePlugin",
          "search.aggregations.matrix.MatrixAggregationModulePlugin",
          "index.rankeval.RankEvalModulePlugin",
          "script.mustache.MustacheModulePlugin",
          "geo.GeoModulePlugin",
          "ingest.common.IngestCommonModulePlugin",
          "search.pipeline.common.SearchPipelineCommonModulePlugin",
          "painless.PainlessModulePlugin");

  @SuppressWarnings("unchecked")
  Server(Environment environment) throws ClassNotFoundException {
    // A raw collection, since OpenSearch 2 takes classes, and OpenSearch 3 descriptions of them.
    super(environment, (Collection) modules(), true);
  }

  static Class<?> load(String module) throws ClassNotFoundException {
    String name = "org.opensearch." + module;
    try {
      return Class.forName(name);
    } catch (ClassNotFoundException missing) {
      return Class.forName(name.replace("ModulePlugin", "Plugin"));
    }
  }

  static List<Object> modules() throws ClassNotFoundException {
    List<Object> modules = new ArrayList<>();
    for (String module : MODULES) {
      Class<?> loaded = load(module);
      modules.add(IS_2 ? loaded : describe(loaded.getName()));
    }
    return modules;
  }

  static PluginInfo describe(String className) {
    return new PluginInfo(
        className, "", "1", Version.CURRENT, "11", className, null, List.of(), false);
  }

  public static void main(String[] arguments) throws Exception {
    Settings settings =
        Settings.builder()
            .put("path.home", arguments[0])
            .put("http.host", "127.0.0.1")
            .put("transport.host", "127.0.0.1")
            .put("http.port", arguments[1])
            .put("transport.port", "0")
            .put("transport.type", "netty4")
            .put("http.type", "netty4")
            .put("discovery.type", "single-node")
            .put("cluster.routing.allocation.disk.threshold_enabled", false)
            .build();
    new Server(new Environment(settings, Path.of(arguments[0], "config"))).start();
    Thread.currentThread().join();
  }
}
