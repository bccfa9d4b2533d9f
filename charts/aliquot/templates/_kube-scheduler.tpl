{{- define "aliquot.kubeSchedulerConfiguration" -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
# An event for every pod bound, a condition for every pod that waits; the extender binds with a client of its own.
clientConnection: {qps: 200, burst: 400}
leaderElection:
  leaderElect: true
  resourceLock: leases
  resourceName: aliquot-scheduler
  resourceNamespace: {{ .Release.Namespace }}
  leaseDuration: {{ .Values.kubeScheduler.leaderElection.leaseDuration }}
  renewDeadline: {{ .Values.kubeScheduler.leaderElection.renewDeadline }}
  retryPeriod: {{ .Values.kubeScheduler.leaderElection.retryPeriod }}
# The extender does the sampling, and knows better which nodes are worth looking at.
percentageOfNodesToScore: 100
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: {{ .Values.kubeScheduler.podMaxBackoffSeconds }}
profiles:
- schedulerName: aliquot-scheduler
  plugins:
    score:
      # Placement weighs CPU and memory itself.
      disabled:
      - name: NodeResourcesFit
      - name: NodeResourcesBalancedAllocation
  pluginConfig:
  # No spreading that nobody asked for: it would work against binpack.
  - name: PodTopologySpread
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: PodTopologySpreadArgs
      defaultingType: List
      defaultConstraints: []
extenders:
- urlPrefix: http://127.0.0.1:9998
  filterVerb: filter
  prioritizeVerb: prioritize
  bindVerb: bind
  preemptVerb: preempt
  weight: 5
  nodeCacheCapable: true
  httpTimeout: 10s
  # kube-scheduler checks the nodes' totals too: a necessary condition, and what wakes and preempts pods in-tree.
  managedResources:
  - {name: nvidia.com/gpu, ignoredByScheduler: false}
  - {name: nvidia.com/gpumem, ignoredByScheduler: false}
  - {name: nvidia.com/gpumem-percentage, ignoredByScheduler: false}
  - {name: nvidia.com/gpucores, ignoredByScheduler: false}
{{- end }}
