{{- define "aliquot.kubeSchedulerConfiguration" -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
# For an event per bound pod and a condition per Pending pod. The extender binds with its own client.
clientConnection: {qps: 200, burst: 400}
leaderElection:
  leaderElect: true
  resourceLock: leases
  resourceName: aliquot-scheduler
  resourceNamespace: {{ .Release.Namespace }}
# kube-scheduler samples no nodes: the extender limits their number (ALIQUOT_NODES_PER_FILTER).
percentageOfNodesToScore: 100
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: {{ .Values.kubeScheduler.podMaxBackoffSeconds }}
profiles:
- schedulerName: aliquot-scheduler
  {{- /* Aliquot's scoring includes CPU and memory. */}}
  {{- $plugins := deepCopy (.Values.kubeScheduler.plugins | default dict) }}
  {{- $score := $plugins.score | default dict }}
  {{- $disabled := concat (list (dict "name" "NodeResourcesFit") (dict "name" "NodeResourcesBalancedAllocation")) ($score.disabled | default list) }}
  plugins:
    {{- set $plugins "score" (set $score "disabled" $disabled) | toYaml | nindent 4 }}
  pluginConfig:
  # Whole MIG instances: no node has these resources, and the extender counts the instances of each profile.
  - name: NodeResourcesFit
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: NodeResourcesFitArgs
      ignoredResourceGroups: [mig.aliquot.io]
  {{- $configured := list }}
  {{- range .Values.kubeScheduler.pluginConfig }}
  {{- $configured = append $configured .name }}
  {{- end }}
  {{- if not (has "PodTopologySpread" $configured) }}
  # No default topology spread constraints, which would counteract binpack.
  - name: PodTopologySpread
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: PodTopologySpreadArgs
      defaultingType: List
      defaultConstraints: []
  {{- end }}
  {{- with .Values.kubeScheduler.pluginConfig }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
extenders:
- urlPrefix: http://127.0.0.1:9998
  filterVerb: filter
  prioritizeVerb: prioritize
  bindVerb: bind
  preemptVerb: preempt
  weight: 5
  nodeCacheCapable: true
  httpTimeout: 10s
  # kube-scheduler checks the nodes' totals too: a necessary condition, on which its own requeueing and preemption rely.
  managedResources:
  - {name: aliquot.io/vgpu, ignoredByScheduler: false}
  - {name: nvidia.com/gpumem, ignoredByScheduler: false}
  - {name: nvidia.com/gpumem-percentage, ignoredByScheduler: false}
  - {name: nvidia.com/gpucores, ignoredByScheduler: false}
{{- end }}
