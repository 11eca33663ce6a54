import java.nio.file.Path;
import java.util.List;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.node.Node;
import org.opensearch.plugins.Plugin;

/** One node of OpenSearch with the modules of its distribution. Arguments: a directory, a port. */
class Server extends Node {
  static final List<Class<? extends Plugin>> MODULES =
      List.of(
          org.opensearch.transport.Netty4Plugin.class,
          org.opensearch.analysis.common.CommonAnalysisPlugin.class,
          org.opensearch.index.reindex.ReindexPlugin.class,
          org.opensearch.join.ParentJoinPlugin.class,
          org.opensearch.percolator.PercolatorPlugin.class,
          org.opensearch.index.mapper.MapperExtrasPlugin.class,
          org.opensearch.search.aggregations.matrix.MatrixAggregationPlugin.class,
          org.opensearch.index.rankeval.RankEvalPlugin.class,
          org.opensearch.script.mustache.MustachePlugin.class,
          org.opensearch.geo.GeoModulePlugin.class,
          org.opensearch.ingest.common.IngestCommonPlugin.class,
          org.opensearch.search.pipeline.common.SearchPipelineCommonModulePlugin.class,
          org.opensearch.painless.PainlessPlugin.class);

  Server(Environment environment) {
    super(environment, MODULES, true);
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
